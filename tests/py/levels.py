"""The instruction levels that this machine has, worst first."""
from pathlib import Path

_NEEDS = {"c": set(), "avx2": {"avx2", "fma", "f16c"},
          "avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"}}
_FLAGS = set(Path("/proc/cpuinfo").read_text().split())
LEVELS = [level for level, needs in _NEEDS.items() if needs <= _FLAGS]
