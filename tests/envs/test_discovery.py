"""Tasks of installed distributions: found by id in every kind of process, and broken ones disturb nobody."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import atrl_envs

ROOT = Path(atrl_envs.__file__).parents[1]
TASK = '''
import numpy
import atrl_envs

class {name}(atrl_envs.Task):
    """{name} of a number below `limit`."""
    limit: int = 100

    def problem(self, rng: numpy.random.Generator) -> atrl_envs.Problem:
        n = int(rng.integers(self.limit))
        return atrl_envs.Problem(prompt=f"{name} {{n}}=", answer=str(2 * n))
'''
REGISTERED = TASK + 'atrl_envs.register("{space}/{name}-v0", {name}, max_new_tokens=6)\n'


def distribution(site: Path, name: str, entries: str, **modules: str) -> None:
    """What pip leaves of a distribution: its modules, and a dist-info with entry points."""
    info = site / f"{name.replace('-', '_')}-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(f"[atrl.tasks]\n{entries}\n")
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text)


def run(code: str, site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A script in a process of its own, for which `site` is installed."""
    script = site.parent / "script.py"
    script.write_text(textwrap.dedent(code))
    paths = os.pathsep.join([str(site), str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), *words]
    return subprocess.run(command, input="", capture_output=True, text=True, env=env)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Three distributions: ids by module and by class, a module of another name, and several broken ones."""
    folder = tmp_path / "site"
    distribution(
        folder,
        "doubling",
        "doubling/Doubling-v0 = doubling\ndoubling/Halving-v0 = doubling_classes:Halving",
        doubling=REGISTERED.format(name="Doubling", space="doubling"),
        doubling_classes=TASK.format(name="Halving"),
    )
    distribution(folder, "many-tasks", "tasks = many", many=REGISTERED.format(name="Many", space="many"))
    return folder


def test_listing_loads_only_what_has_no_id(site: Path) -> None:
    code = """
        import sys, atrl_envs
        def loaded():
            return [m for m in ("doubling", "doubling_classes", "many", "reasoning_gym", "torch") if m in sys.modules]
        print(loaded())
        print([id for id in atrl_envs.list_envs() if not id.startswith(("atrl/", "reasoning_gym/"))], loaded())
        """
    imported, listed = run(code, site).stdout.splitlines()
    assert imported == "[]"
    assert listed == "['doubling/Doubling-v0', 'doubling/Halving-v0', 'many/Many-v0'] ['many']"


def test_ids_are_found_without_an_import_and_in_spawned_workers(site: Path) -> None:
    code = """
        import multiprocessing, warnings

        def every_way(maker, spec):
            warnings.simplefilter("error")
            import gymnasium
            one = gymnasium.make("atrl_envs:doubling/Doubling-v0")
            assert one.reset(seed=1)[0]["length"] >= len("Doubling 1=")
            assert gymnasium.make_vec("doubling/Halving-v0", num_envs=2).num_envs == 2
            assert gymnasium.make(spec).reset(seed=1)[0]["length"] >= len("Halving 1=")
            import atrl_envs
            assert atrl_envs.make("doubling/Doubling-v0").max_new_tokens == 6
            assert len(atrl_envs.make("many/Many-v0", limit=50).bank) > 30
            assert gymnasium.make("many/Many-v0").spec.id == "many/Many-v0"
            assert maker().bank.prompt_texts[0].startswith("Halving ")
            ids = {"doubling/Doubling-v0", "doubling/Halving-v0", "many/Many-v0"}
            return ids <= set(atrl_envs.list_envs())

        if __name__ == "__main__":
            import atrl_envs, gymnasium
            maker = atrl_envs.EnvMaker("doubling/Halving-v0", limit=50)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.apply(every_way, (maker, gymnasium.spec("doubling/Halving-v0"))))
        """
    done = run(code, site)
    assert done.stdout.strip() == "True", done.stderr


def test_the_command_line_finds_them(site: Path) -> None:
    code = "import sys; from atrl_agents.cli import main; sys.exit(main())"
    listed = run(code, site, "envs").stdout.splitlines()
    assert "doubling/Halving-v0\tplain\tHalving of a number below `limit`." in listed
    assert "many/Many-v0\tplain\tMany of a number below `limit`." in listed
    for id in ("doubling/Doubling-v0", "doubling/Halving-v0", "many/Many-v0"):
        refused = run(code, site, "check", id, "--set", "limt=60")
        assert "has no parameter 'limt'; did you mean 'limit'" in refused.stderr


def test_a_broken_distribution_is_a_warning_that_names_it(site: Path) -> None:
    distribution(site, "broken-one", "broken/One-v0 = broken_one", broken_one="import no_such_dependency")
    distribution(site, "broken-two", "broken/Two-v0 = broken_two\nother = nowhere", broken_two="x = 1")
    distribution(
        site, "broken-three", "broken/Three-v0 = broken_three:Three", broken_three="class Three: pass"
    )
    distribution(
        site,
        "a-thief",
        "theft = thief",
        thief='import atrl_envs, many\natrl_envs.register("atrl/File-v0", many.Many)',
    )
    code = """
        import warnings, atrl_envs
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            listed = atrl_envs.list_envs()
            for id in ("broken/One-v0", "broken/One-v0", "broken/Two-v0", "broken/Three-v0"):
                try:
                    atrl_envs.get_spec(id)
                except atrl_envs.UnknownEnvError as error:
                    print("UNKNOWN", error)
            assert atrl_envs.get_spec("doubling/Doubling-v0").module == "doubling"
            assert atrl_envs.get_spec("many/Many-v0").build_task(limit=3).limit == 3
            assert atrl_envs.get_spec("atrl/File-v0").task == "atrl_envs.tasks.file:File"
        for warning in caught:
            print("WARNING", warning.message)
        """
    done = run(code, site)
    lines = done.stdout.splitlines()
    warned = [line for line in lines if line.startswith("WARNING")]
    assert len(warned) == 5, done.stdout + done.stderr  # each once
    for distribution_name, cause in (
        ("broken-one", "No module named 'no_such_dependency'"),
        ("broken-two", "importing broken_two registers no such id"),
        ("broken-two", "No module named 'nowhere'"),
        ("broken-three", "wants a subclass of atrl_envs.Task"),
        ("a-thief", "'atrl/File-v0' is already"),
    ):
        assert any(f"distribution '{distribution_name}'" in line and cause in line for line in warned), (
            cause,
            warned,
        )
    unknown = [line for line in lines if line.startswith("UNKNOWN")]
    assert len(unknown) == 4
    assert all("update or uninstall it" in line for line in unknown)


def test_the_command_line_lists_the_others(site: Path) -> None:
    distribution(site, "broken-one", "broken/One-v0 = broken_one", broken_one="1 / 0")
    code = "import sys; from atrl_agents.cli import main; sys.exit(main())"
    done = run(code, site, "envs")
    assert done.returncode == 0, done.stderr
    assert "many/Many-v0" in done.stdout
    assert "broken/One-v0" not in done.stdout
    assert "'broken-one' says that it brings the task 'broken/One-v0'" in done.stderr
    asked = run(code, site, "check", "broken/One-v0")
    assert asked.returncode == 2
    assert "division by zero" in asked.stderr
    assert "Traceback" not in asked.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("setuptools") is None, reason="needs setuptools to build a package"
)
def test_a_new_package_after_pip_install(tmp_path: Path) -> None:
    from atrl_agents.new import write_package

    folder, site = write_package("tripling", tmp_path / "source"), tmp_path / "site"
    words = ["install", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site), str(folder)]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    code = """
        import atrl_envs, gymnasium
        print(len(gymnasium.make("tripling/Tripling-v0").unwrapped.env.bank) > 50)
        """
    found = run(code, site)
    assert found.stdout.strip() == "True", found.stderr
    listed = run("import sys; from atrl_agents.cli import main; sys.exit(main())", site, "envs", "tripling")
    assert listed.stdout.startswith("tripling/Tripling-v0\tplain\tTwice a number"), listed.stderr
