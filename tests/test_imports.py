"""The rules of the tree, read from its syntax: who imports whom, where key names are spelled, what stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from atrl_envs import keys

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("atrl_envs", "atrl_collectors", "atrl_agents")
ALLOWED = {
    "atrl_envs": ("atrl_envs",),
    "atrl_collectors": ("atrl_collectors", "atrl_envs.keys"),
    "atrl_agents": PACKAGES,
}
# Modules that the command line loads before it complains; torch would make each complaint seconds late.
LIGHT = (
    "atrl_agents",
    "atrl_agents.arguments",
    "atrl_agents.cli",
    "atrl_agents.complaints",
    "atrl_agents.config",
    "atrl_agents.config_check",
    "atrl_agents.config_file",
    "atrl_agents.console",
    "atrl_agents.envs_command",
    "atrl_agents.eval_command",
    "atrl_agents.export_command",
    "atrl_agents.model_check",
    "atrl_agents.new",
    "atrl_agents.parameters",
    "atrl_agents.play",
    "atrl_agents.plot",
    "atrl_agents.report",
    "atrl_agents.run_files",
    "atrl_envs",
    "atrl_envs.keys",
    "atrl_envs.registry",
    "atrl_envs.task",
)
NOT_A_KEY = "# not a key"  # on the line of a string that only happens to read like a key
KEY_NAMES = {value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)}


def files(*packages: str) -> list[Path]:
    return sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute module) of every import, `from package import module` as package.module too."""
    package = module_of(path) if path.name == "__init__.py" else module_of(path).rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def is_within(module: str, allowed: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


def key_literals(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every string that spells a key, docstrings and marked lines left out."""
    lines = source.splitlines()
    tree = ast.parse(source)
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in KEY_NAMES and id(node) not in bare:
            if NOT_A_KEY not in lines[node.lineno - 1]:
                yield node.lineno, str(node.value)


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_way(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in files(package)
        for line, module in imported_modules(path)
        if module.partition(".")[0] in (*PACKAGES, "tests", "benchmarks")
        and not is_within(module, ALLOWED[package])
    ]
    assert wrong == []


def test_the_reference_imports_nothing_of_ours() -> None:
    path = ROOT / "tests" / "reference.py"
    assert [m for _, m in imported_modules(path) if m.partition(".")[0] in (*PACKAGES, "tests")] == []


def test_keys_are_spelled_in_one_place() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} spells {text!r}: use atrl_envs.keys, or mark the line `{NOT_A_KEY}`"
        for path in files(*PACKAGES)
        # Verifiers see tensors and texts, never what travels under these names.
        if path != ROOT / "atrl_envs" / "keys.py" and ROOT / "atrl_envs" / "verify" not in path.parents
        for line, text in key_literals(path.read_text(encoding="utf-8"))
    ]
    assert wrong == []


def test_the_walk_finds_what_it_looks_for() -> None:
    source = """
'tokens'
x = td['tokens']
y = td['next', 'reward']
z = 'tokens'  # not a key
w = 'tokens '
"""
    assert list(key_literals(source)) == [(3, "tokens"), (4, "next"), (4, "reward")]
    here = dict.fromkeys(module for _, module in imported_modules(Path(__file__)))
    assert "atrl_envs.keys" in here
    assert not is_within("atrl_envs.keyspace", ("atrl_envs.keys",))


def test_config_modules_name_no_torch() -> None:
    configs = [path for path in files(*PACKAGES) if path.name.startswith("config")]
    assert len(configs) >= 3
    heavy = ("torch", "tensordict", "torchrl", "transformers")
    named = [(path.name, module) for path in configs for _, module in imported_modules(path)]
    assert [(name, module) for name, module in named if module.partition(".")[0] in heavy] == []


def test_light_modules_load_no_torch() -> None:
    code = f"import sys\nfor name in {LIGHT!r}: __import__(name)\n"
    code += "print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_of_users_see_the_annotations(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
