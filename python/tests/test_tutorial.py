"""The Python of docs/tutorial.md."""

import os
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).parents[2]


class Tutorial(unittest.TestCase):
    def test_it(self):
        blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/tutorial.md").read_text(), re.DOTALL | re.MULTILINE)
        self.assertEqual(len(blocks), 1)
        os.chdir(ROOT)
        exec(compile(blocks[0], "docs/tutorial.md", "exec"), {})


if __name__ == "__main__":
    unittest.main()
