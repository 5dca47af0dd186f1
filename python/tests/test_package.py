"""The installed package: `cargo xtask wheel` runs this in an environment that has nothing else."""

import concurrent.futures
import doctest
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import oxptxas

KERNELS = pathlib.Path(__file__).parents[2] / "kernels"
SAXPY = (KERNELS / "saxpy.ptx").read_text()
WRONG = ".version 8.0\n.target sm_75\n.visible .entry k() {\n  oops;\n}\n"


def long_kernel(size):
    """PTX that takes a while."""
    sums = "\n".join(f"fma.rn.f32 %f{1 + n % 90}, %f{1 + n % 89}, %f{1 + n % 83}, %f{1 + n % 71};" for n in range(size))
    loads = "\n".join(f"ld.global.f32 %f{n}, [%rd1+{4 * n}];" for n in range(100))
    stores = "\n".join(f"st.global.f32 [%rd1+{4 * n}], %f{n};" for n in range(100))
    return (
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p) {\n"
        f".reg .f32 %f<100>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [p];\n{loads}\n{sums}\n{stores}\nret;\n}}\n"
    )


class Package(unittest.TestCase):
    def test_examples(self):
        failed, tried = doctest.testmod(oxptxas)
        self.assertEqual((failed, tried > 2), (0, True))

    def test_compiles_the_same_as_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "k.cubin"
            subprocess.run([oxptxas.ptxas(), "-arch=sm_90", "-O1", KERNELS / "saxpy.ptx", "-o", out], check=True)
            self.assertEqual(oxptxas.compile(SAXPY, "sm_90", ["-O1"]), out.read_bytes())
        self.assertEqual(oxptxas.compile(SAXPY.encode(), "sm_90"), oxptxas.compile(SAXPY, "sm_90"))

    def test_log(self):
        said = []
        oxptxas.compile(SAXPY, "sm_90", ["-v", "-maxrregcount=10"], log=said.append)
        text = "\n".join(said)
        self.assertIn("warning: For profile sm_90 adjusting", text)
        self.assertIn("Compiling entry function", text)

    def test_exceptions(self):
        with self.assertRaises(oxptxas.PtxError) as raised:
            oxptxas.compile(WRONG, "sm_90")
        message = raised.exception.messages[0]
        self.assertEqual((message.line, message.column, message.severity), (4, 3, "error"))
        with self.assertRaises(oxptxas.VersionError):
            oxptxas.compile(".version 99.0\n.target sm_75\n", "sm_90")
        with self.assertRaisesRegex(oxptxas.OptionError, "Value 'sm_91' is not defined for option 'gpu-name'"):
            oxptxas.compile(SAXPY, "sm_91")
        with self.assertRaises(ValueError):
            oxptxas.compile(SAXPY, "sm_90", ["--nothing"])
        with self.assertRaises(ValueError):
            oxptxas.compile(SAXPY, "compute_90")
        with self.assertRaises(ValueError):
            oxptxas.disassemble(b"no cubin")
        with self.assertRaises(oxptxas.CompileError):
            oxptxas.verify(WRONG, "sm_90")

    def test_verifies_and_disassembles(self):
        judged = oxptxas.verify(SAXPY, "sm_90", ["-O1"])
        self.assertTrue(judged)
        self.assertEqual([k.verdict for k in judged.kernels], ["same"])
        cubin = oxptxas.compile(SAXPY, "sm_90")
        self.assertTrue(oxptxas.verify(SAXPY, "sm_90", cubin=cubin))
        other = SAXPY.replace("fma.rn.f32", "fma.rz.f32")
        self.assertNotEqual(other, SAXPY)
        self.assertFalse(oxptxas.verify(SAXPY, "sm_90", cubin=oxptxas.compile(other, "sm_90")))
        listing = oxptxas.disassemble(cubin, control=True)
        self.assertIn("FFMA", listing)
        self.assertIn("[B", listing)

    def test_programs(self):
        folder = pathlib.Path(oxptxas.path())
        for name in ["oxptxas", "oxsass", "ptxas"]:
            self.assertTrue(os.access(folder / "bin" / name, os.X_OK), name)
        said = subprocess.run([oxptxas.ptxas(), "--version"], check=True, capture_output=True, text=True).stdout
        self.assertRegex(said, r"release 13\.0, V13\.0\.88")
        # Beside the interpreter, as pip puts commands.
        command = pathlib.Path(sys.executable).parent / "oxsass"
        self.assertIn("verify", subprocess.run([command, "--help"], check=True, capture_output=True, text=True).stdout)
        said = subprocess.run([sys.executable, "-m", "oxptxas", "ptxas"], check=True, capture_output=True, text=True)
        self.assertEqual(said.stdout.strip(), oxptxas.ptxas())

    def test_threads(self):
        alone = oxptxas.compile(SAXPY, "sm_90")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(set(pool.map(lambda _: oxptxas.compile(SAXPY, "sm_90"), range(64))), {alone})

    def test_others_run_meanwhile(self):
        ticks = []
        done = threading.Event()

        def tick():
            while not done.wait(0.001):
                ticks.append(None)

        other = threading.Thread(target=tick)
        other.start()
        oxptxas.compile(long_kernel(2000), "sm_90")
        done.set()
        other.join()
        self.assertGreater(len(ticks), 2)

    def test_interrupt(self):
        # What a shell starts in the background ignores it otherwise.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        start = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            while time.monotonic() < start + 60:
                oxptxas.compile(long_kernel(500), "sm_90")


if __name__ == "__main__":
    unittest.main()
