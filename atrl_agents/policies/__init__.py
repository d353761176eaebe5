"""Language models as TorchRL policies: `TransformersPolicy` runs any transformers causal LM with a slot cache."""

from .transformers_policy import TransformersPolicy

__all__ = ["TransformersPolicy"]
