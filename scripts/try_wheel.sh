#!/usr/bin/env bash
# Installs a built wheel as users do, from the index with its extra `pyspark` into a new environment, and runs the
# examples of the README there.  PYTHON= chooses the interpreter.
set -euo pipefail
wheel="$(realpath "$1")"
readme="$(realpath "$(dirname "$0")/../README.md")"
place="$(mktemp -d)"
trap 'rm -rf "$place"' EXIT
# Elsewhere, so that nothing of the checkout is importable.
cd "$place"
"${PYTHON:-python3}" -m venv env
env/bin/python -m pip --disable-pip-version-check install --quiet "dovetail-spark[pyspark] @ file://$wheel"
env/bin/python - "$readme" >readme.py <<'PY'
import re, sys
from pathlib import Path

text = Path(sys.argv[1]).read_text(encoding="utf-8")
print("\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)))
PY
env/bin/python readme.py
env/bin/python -c 'import dovetail; print("dovetail", dovetail.__version__, "works from", dovetail.__file__)'
