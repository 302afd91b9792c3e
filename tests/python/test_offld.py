"""Compares the Python module with the program on real files. tests/suite/python.rs builds the module, creates the files and runs this
in their directory, with the program's path in OFFLD_PROGRAM.
"""

import hashlib
import json
import os
import pathlib
import pickle
import subprocess
import threading
import time
import typing
import unittest

import offld

PROGRAM = os.environ["OFFLD_PROGRAM"]
#: An object with an image for the CPU, a shared library, a wheel with device code for NVIDIA GPUs, and a damaged container.
OBJECT, LIBRARY, WHEEL, DAMAGED = "fat.o", "libfat.so", "package.whl", "damaged.bin"
FILES = (OBJECT, LIBRARY, WHEEL, DAMAGED)


def command(*words: str) -> typing.Any:
    """The JSON output of the program, for any exit status."""
    ended = subprocess.run([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert ended.stdout, ended.stderr.decode()
    return json.loads(ended.stdout)


def plain(image: offld.Image) -> typing.Dict[str, typing.Any]:
    """An image in the form that the program prints."""
    values = {name: value for name, value in vars(image).items() if name not in ("file", "_inspected")}
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return {**lists, "extracted": None}


class Inspect(unittest.TestCase):
    def test_reports_are_those_of_the_command(self) -> None:
        for name in FILES:
            with self.subTest(name):
                told = command("inspect", "--json", "--kernels", name)["files"][0]
                report = offld.inspect(name, kernels=True)
                self.assertEqual([plain(image) for image in report.images], told["images"])
                for member in ("file", "type", "registrations", "entries", "modules", "linked_by", "errors"):
                    value = getattr(report, member)
                    self.assertEqual(list(value) if isinstance(value, tuple) else value, told[member], member)

    def test_images_are_read_and_written(self) -> None:
        images = offld.images(WHEEL)
        self.assertGreater(len(images), 1)
        for image in images:
            data = image.read()
            self.assertEqual((len(data), hashlib.sha256(data).hexdigest()), (image.size, image.sha256))
        images[0].write("written")
        self.assertEqual(pathlib.Path("written").read_bytes(), images[0].read())
        images[1].write(pathlib.Path("written"))
        self.assertEqual(pathlib.Path("written").read_bytes(), images[1].read())
        with self.assertRaises(FileNotFoundError) as caught:
            images[0].write("no/such/folder/image")
        self.assertEqual(caught.exception.filename, "no/such/folder/image")
        with self.assertRaises(TypeError):
            pickle.dumps(images[0])

    def test_bytes_in_memory(self) -> None:
        data = pathlib.Path(OBJECT).read_bytes()
        for given in (data, bytearray(data), memoryview(data)):
            report = offld.inspect_bytes(given, name="upload")
            self.assertEqual((report.file, report.type), ("upload", "elf-object"))
            found, expected = [
                [(image.sha256, image.kinds, image.triple, image.section, image.read()) for image in images]
                for images in (report.images, offld.images(OBJECT))
            ]
            self.assertEqual(found, expected)
        self.assertEqual(offld.inspect_bytes(b"").type, "empty")

    def test_headers_alone(self) -> None:
        image = offld.inspect(WHEEL, headers_only=True).images[0]
        self.assertIsNone(image.sha256)
        with self.assertRaisesRegex(offld.Error, "without its bytes"):
            image.read()

    def test_damaged_files(self) -> None:
        report = offld.inspect(DAMAGED)
        self.assertTrue(report.errors)
        with self.assertRaises(offld.Error) as caught:
            offld.images(DAMAGED)
        error = caught.exception
        self.assertIsInstance(error, Exception)
        self.assertTrue(str(error).startswith(DAMAGED), str(error))
        self.assertEqual((error.file, tuple(error.errors)), (DAMAGED, report.errors))
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), again.file, again.errors), (str(error), error.file, error.errors))


class Size(unittest.TestCase):
    def test_reports_are_those_of_the_command(self) -> None:
        for name in FILES:
            with self.subTest(name):
                self.assertEqual(offld.size(name), command("size", "--json", name))
                self.assertEqual(
                    offld.size(name, by=("arch", "kernel"), sort="inflated"),
                    command("size", "--json", "--by", "arch,kernel", "--sort", "inflated", name),
                )
        self.assertEqual(offld.size(".", filter="SM_9"), command("size", "--json", "--filter", "sm_9", "."))

    def test_every_byte_is_counted(self) -> None:
        total = offld.size(WHEEL)["total"]
        self.assertEqual(total["file"], os.path.getsize(WHEEL))
        self.assertEqual(sum(row["file"] for row in total["rows"]), total["file"])

    def test_what_cannot_be_asked(self) -> None:
        with self.assertRaisesRegex(offld.Error, "`colour`.*arch, kind"):
            offld.size(WHEEL, by=("colour",))  # type: ignore[arg-type]
        with self.assertRaisesRegex(offld.Error, "invalid filter"):
            offld.size(WHEEL, filter="(")
        with self.assertRaisesRegex(offld.Error, "'name'"):
            offld.size(WHEEL, sort="name")


class Check(unittest.TestCase):
    def test_reports_are_those_of_the_command(self) -> None:
        for name in FILES:
            for devices in ((), ("sm_90",), ("gfx942", "x86-64-v3")):
                with self.subTest(name, devices=devices):
                    options = [word for device in devices for word in ("--for", device)]
                    self.assertEqual(offld.check(name, *devices), command("check", "--json", *options, name))

    def test_answers(self) -> None:
        answers = [offld.check(name, "sm_90")["answer"] for name in (WHEEL, OBJECT, DAMAGED)]
        self.assertEqual(answers, ["yes", "no", "unreadable"])
        no = offld.check(WHEEL, "sm_35")["files"]
        reasons = [load["text"] for file in no for unit in file["units"] for load in unit["loads"]]
        self.assertTrue(any("the nearest image is for" in reason for reason in reasons), reasons)

    def test_what_is_no_device(self) -> None:
        for devices in (("toaster",), ("sm_90", "")):
            with self.assertRaises(offld.Error):
                offld.check(WHEEL, *devices)


class Files(unittest.TestCase):
    FUNCTIONS = (offld.images, offld.inspect, offld.size, offld.check)

    def test_that_cannot_be_opened(self) -> None:
        for function in self.FUNCTIONS:
            with self.subTest(function), self.assertRaises(FileNotFoundError) as caught:
                function("no such file")
            self.assertEqual((caught.exception.filename, caught.exception.strerror), ("no such file", "No such file or directory"))
        with self.assertRaises(IsADirectoryError):
            offld.images(".")

    def test_by_every_kind_of_name(self) -> None:
        name = b"caf\xe9.o"
        os.link(os.fsencode(OBJECT), name)
        for function in self.FUNCTIONS:
            for path in (name, os.fsdecode(name), pathlib.Path(os.fsdecode(name))):
                function(path)
        odd = b"no\xff.o"
        for path in (odd, os.fsdecode(odd)):
            with self.assertRaises(FileNotFoundError) as caught:
                offld.images(path)
            self.assertEqual(os.fsencode(caught.exception.filename), odd)
        with self.assertRaises(TypeError):
            offld.images(3)  # type: ignore[arg-type]
        with self.assertRaises(OSError):
            offld.images("a\0b")

    def test_folders(self) -> None:
        self.assertEqual(offld.check(".", "sm_90"), command("check", "--json", "--for", "sm_90", "."))
        self.assertGreater(len(offld.size(".")["files"]), 2)


class Process(unittest.TestCase):
    def test_other_threads_run_meanwhile(self) -> None:
        turns, done = 0, threading.Event()

        def work() -> None:
            offld.size(WHEEL, by=("kernel",))
            done.set()

        # If offld held the interpreter's lock, this thread would not run before the work is done.
        thread = threading.Thread(target=work)
        thread.start()
        while not done.is_set():
            turns += 1
            time.sleep(0.001)
        thread.join()
        self.assertGreater(turns, 3)

    def test_a_process_that_was_forked(self) -> None:
        offld.size(WHEEL)
        child = os.fork()
        if child == 0:
            # A forked process has none of its parent's other threads.
            os._exit(0 if offld.size(WHEEL)["total"]["file"] and offld.images(WHEEL) else 1)
        for _ in range(600):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                self.assertEqual(status, 0)
                return
            time.sleep(0.1)
        os.kill(child, 9)
        os.waitpid(child, 0)
        self.fail("it hangs")

    def test_versions(self) -> None:
        version = subprocess.run([PROGRAM, "--version"], stdout=subprocess.PIPE, check=True, text=True).stdout
        self.assertEqual(version, f"offld {offld.__version__}\n")


class Types(unittest.TestCase):
    """The types match the reports. mypy checks that the code matches the types."""

    def expect(self, type_: typing.Any, value: typing.Any) -> None:
        if getattr(type_, "__total__", None) is not None:
            self.assertLessEqual(set(value), set(typing.get_type_hints(type_)), type_)
            self.assertLessEqual(type_.__required_keys__, set(value), type_)
            for name, of_member in typing.get_type_hints(type_).items():
                if name in value:
                    self.expect(of_member, value[name])
            return
        origin, arguments = typing.get_origin(type_), typing.get_args(type_)
        if origin is typing.Literal:
            self.assertIn(value, arguments)
        elif origin is typing.Union:
            if value is not None:
                self.expect(arguments[0], value)
        elif origin is list:
            self.assertIsInstance(value, list)
            for each in value:
                self.expect(arguments[0], each)
        elif origin is tuple:
            self.assertIsInstance(value, tuple)
            for each in value:
                self.expect(arguments[0], each)
        elif type_ is not typing.Any:
            self.assertIsInstance(value, origin or type_)

    def test_of_reports(self) -> None:
        for name in FILES:
            self.expect(offld.SizeReport, offld.size(name, by=("arch", "kernel")))
            self.expect(offld.CheckReport, offld.check(name))
            self.expect(offld.CheckReport, offld.check(name, "sm_90"))
            report = offld.inspect(name, kernels=True)
            for thing in (report, *report.images):
                for member, type_ in typing.get_type_hints(type(thing)).items():
                    self.expect(type_, getattr(thing, member))


if __name__ == "__main__":
    unittest.main()
