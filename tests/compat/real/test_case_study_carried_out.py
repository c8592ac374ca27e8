"""The plugin of the documents' case study runs its script where there is a service for that."""

from __future__ import annotations

from pathlib import Path

from example_bench import OpenBench
from script_plugin import write_script_plugin
from test_tool_files import BILIBILI, SUBTITLES, write_case_study


async def test_the_tool_of_the_case_study_runs_its_script_where_there_is_a_service(
    open_bench: OpenBench, spec_dir: Path, tmp_path: Path
) -> None:
    plugin = write_case_study(spec_dir, tmp_path, BILIBILI["000 §16.2"](spec_dir))
    runner = write_script_plugin(tmp_path, scripts__BilibiliFetch=SUBTITLES)
    async with open_bench(plugin, runner) as bench:
        done = await bench.call("BilibiliFetch:getSubtitle", url="BV1")
        without = await bench.call("BilibiliFetch:getSubtitle")
    assert (done.status, done.structured) == ("done", {"subtitle": "of BV1"})
    assert without.error.message.endswith("url: is required and missing")
