"""The tasks that come with the package, one file each; importing this module registers nothing."""
