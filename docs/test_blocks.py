#!/usr/bin/env python3
"""What docs/blocks.py says of pages that are right, and of pages that are not."""

import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import blocks
import words


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "page.md"

    def page(self, text):
        self.file.write_text(text)
        return self.file

    def said(self, text, write=False):
        """What is wrong with a page whose blocks are run."""
        page = self.page(text)
        runner = blocks.Runner(self.folder, self.folder, self.folder, write)
        return runner.page(page, blocks.blocks(page))

    def run_block(self, kind, commands):
        return self.said(f"<!-- {kind} -->\n```console\n{commands}```\n")

    def test_a_block_without_a_comment_is_named(self):
        for text in ("```console\n$ true\n```\n", "```text\nportolan: error\n```\n", "<!-- other -->\n```sh\ntrue\n```\n"):
            said = list(blocks.problems(self.page("\n" + text)))
            self.assertEqual(len(said), 1, text)
            self.assertIn("neither run nor marked", said[0])

    def test_a_reason_a_drawing_and_an_included_file_are_enough(self):
        for text in (
            "<!-- not run: needs a cluster -->\n```console\n$ srun true\n```\n",
            "```text\n a ──► b\n```\n",
            "```rust,ignore\n{{#include ../x.rs}}\n```\n",
        ):
            self.assertEqual(list(blocks.problems(self.page(text))), [], text)

    def test_a_comment_that_says_nothing_is_named(self):
        for text in (
            "<!-- not run: -->\n```console\n$ true\n```\n",
            "<!-- run: loosely -->\n```console\n$ true\n```\n",
            "<!-- run -->\n```console\noutput alone\n```\n",
            "<!-- file: a.toml -->\n```toml\nseed = 7\n```\n",
            "```text\n$ true ─\n```\n",
            "<!-- not run: why -->\n```console\n$ true\n",
        ):
            self.assertEqual(len(list(blocks.problems(self.page(text)))), 1, text)

    def test_pictures_have_a_maker(self):
        self.assertEqual(len(list(blocks.problems(self.page("![a](a.svg)\n")))), 1)
        self.assertEqual(list(blocks.problems(self.page("<!-- picture: cargo xtask credits -->\n![a](a.svg)\n"))), [])

    def test_output_is_compared_to_the_digit(self):
        self.assertEqual(self.run_block("run", "$ echo 6.278; echo two\n6.278\ntwo\n"), [])
        for wrong in ("6.279\ntwo\n", "6.278\n", "6.278\ntwo\nthree\n", "two\n6.278\n"):
            self.assertEqual(len(self.run_block("run", f"$ echo 6.278; echo two\n{wrong}")), 1, wrong)

    def test_what_differs_is_run_again_and_shown_with_its_errors(self):
        said = self.run_block("run", "$ echo why >&2; echo 2\n1\n")
        self.assertRegex(said[0], r"(?s)why.*printed the same")
        for second, what in (("1", "what the page has"), ("3", "something else")):
            once = f"if [ -e once{second} ]; then echo {second}; else touch once{second}; echo 2; fi"
            self.assertIn(f"printed {what}", self.run_block("run", f"$ {once}\n1\n")[0])

    def test_of_a_job_on_the_model_that_differs_the_timelines_are_compared(self):
        job = 'echo one >"$PORTOLAN_TRACE"; [ -e once ] || echo two >>"$PORTOLAN_TRACE"; [ -e once ] && echo four >>"$PORTOLAN_TRACE"'
        said = self.run_block("run", f"$ {job}; touch once; echo 2 # portolan run --fabric seastar\n1\n")[0]
        self.assertRegex(said, r"(?s)timelines part here:.*two.*and here:.*four")
        self.assertNotIn("timelines", self.run_block("run", "$ echo 2\n1\n")[0])

    def test_by_shape_numbers_do_not_count_and_words_do(self):
        self.assertEqual(self.run_block("run: shape", "$ echo '│  17.5 us │'\n│ 6.278 us │\n"), [])
        self.assertEqual(len(self.run_block("run: shape", "$ echo '17.5 us'\n6.278 ns\n")), 1)
        self.assertEqual(len(self.run_block("run: shape", "$ echo checksum 0x12ab7\nchecksum 0x12ab8\n")), 1)

    def test_in_any_order_each_line_comes_once(self):
        self.assertEqual(self.run_block("run: any order", "$ echo b; echo a\na\nb\n"), [])
        self.assertEqual(len(self.run_block("run: any order", "$ echo b; echo b\na\nb\n")), 1)
        self.assertEqual(len(self.run_block("run: any order", "$ echo b; echo a; echo c\na\nb\n")), 1)

    def test_what_is_left_out_has_its_number(self):
        self.assertEqual(self.run_block("run", "$ seq 5\n1\n…\n5\n"), [])
        self.assertEqual(self.run_block("run", "$ seq 5\n1\n… 3 more numbers …\n5\n"), [])
        self.assertEqual(len(self.run_block("run", "$ seq 5\n1\n… 2 more numbers …\n5\n")), 1)
        self.assertEqual(self.run_block("run", "$ echo one two three\none … three\n"), [])

    def test_a_command_that_fails_is_named_unless_its_status_is_asked(self):
        self.assertEqual(len(self.run_block("run", "$ false\n")), 1)
        self.assertEqual(self.run_block("run", "$ (exit 3)\n$ echo $?\n3\n"), [])
        self.assertEqual(len(self.run_block("run", "$ (exit 3)\n$ echo $?\n0\n")), 1)

    def test_errors_are_output_where_the_page_says_so(self):
        self.assertEqual(self.run_block("run", "$ echo no >&2\n"), [])
        self.assertEqual(self.run_block("run: errors", "$ echo no >&2\nno\n"), [])
        self.assertEqual(len(self.run_block("run: errors", "$ echo no >&2\n")), 1)

    def test_blocks_of_a_page_share_files_and_what_they_export(self):
        first = "<!-- file: a.toml -->\n```toml\nseed = 7\n```\n\n<!-- run -->\n```console\n$ export SEED=8\n$ cat a.toml\nseed = 7\n```\n"
        second = "\n<!-- run -->\n```console\n$ echo $SEED\n8\n```\n"
        self.assertEqual(self.said(first + second), [])

    def test_a_picture_is_that_of_the_block(self):
        text = "<!-- run: makes kept.svg from drawn.svg -->\n```console\n$ echo '<svg/>' > drawn.svg\n```\n"
        self.assertEqual(len(self.said(text)), 1)
        self.said(text, write=True)
        self.assertEqual(self.said(text), [])
        (self.folder / "kept.svg").write_text("<svg>old</svg>")
        self.assertEqual(len(self.said(text)), 1)

    def test_numbers_of_a_table_are_rounded_from_what_is_printed(self):
        table = "<!-- values:\n$ echo 6.365 us and 1770\n-->\n| bytes | one | two | one / two |\n|---|--:|--:|--:|\n| 8 | {} | {} | 3.1 |\n"
        self.assertEqual(self.said(table.format("6.37", "1,770")), [])
        self.assertEqual(self.said(table.format("6.4", "– not –")), [])
        self.assertEqual(len(self.said(table.format("6.38", "1770"))), 1)
        self.assertEqual(len(self.said(table.format("6", "1771"))), 1)
        self.assertEqual(len(list(blocks.problems(self.page(table.format("–", "–"))))), 1)

    def test_a_page_is_written_anew_if_one_asks(self):
        text = "Before.\n\n<!-- run -->\n```console\n$ seq 2\n1\n```\n\nAfter.\n"
        self.said(text, write=True)
        self.assertEqual(self.file.read_text(), text.replace("\n1\n", "\n1\n2\n"))

    def test_commands_of_cargo_that_nothing_stands_in_for_fail(self):
        self.assertEqual(len(self.run_block("run", "$ cargo xtask faults\n")), 1)
        self.assertEqual(self.run_block("run", "$ cargo build --release\n"), [])

    def test_a_sentence_that_is_too_long_is_named(self):
        fits = "word " * 24 + "`code of many words` " + "[](a/long/address)."
        self.assertEqual(list(words.long_sentences(fits + " " + fits)), [])
        self.assertEqual(len(list(words.long_sentences("word " * 26 + "end."))), 1)
        self.assertEqual(len(list(words.long_sentences("| " + "word " * 26 + "| short |"))), 1)
        self.assertEqual(list(words.long_sentences("- " + "word " * 14 + "\n- " + "word " * 14)), [])


if __name__ == "__main__":
    unittest.main()
