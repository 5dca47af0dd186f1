"""`python -m oxptxas ptxas` prints the path of the program with that name, `python -m oxptxas path` the folder that has it."""

import sys

from . import path, ptxas

known = {"ptxas": ptxas, "path": path}
if sys.argv[1:] and sys.argv[1] in known and not sys.argv[2:]:
    print(known[sys.argv[1]]())
else:
    sys.exit(f"usage: python -m oxptxas {{{','.join(known)}}}")
