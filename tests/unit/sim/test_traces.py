"""Readers of traces: valid files, and errors for malformed ones."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from croupier.lab.jobs import MAP_BYTES, MAPS, REDUCE_BYTES, REDUCES, make_job, task_counts
from croupier.lab.traces import SwimJob, read_nodes, read_pods, read_swim
from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work

DATA = Path(__file__).parent / "data"
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,262144,0,\nn1,96000,393216,8,G2\n"
POD_TITLES = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)
PODS = POD_TITLES + "p1,6000,12288,1,460,,LS,Running,50,100,50\np0,1000,64,0,0,,BE,Failed,0,7,\n"


class TestSwim:
    def test_a_trace(self) -> None:
        jobs = read_swim(DATA)
        assert len(jobs) == 200
        assert jobs[2] == SwimJob("job2", 20, 53088744165, 1510005522, 5759777)
        assert read_swim(DATA / "swim_fb2010.tsv") == jobs

    def test_gzipped_and_out_of_order(self, tmp_path: Path) -> None:
        path = tmp_path / "swim_fb2010.tsv.gz"
        path.write_bytes(gzip.compress(b"b\t9\t1\t1\t2\t3\r\n\na\t2\t0\t4\t5\t6\n"))
        assert [job.name for job in read_swim(tmp_path)] == ["a", "b"]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", r"t\.tsv holds no jobs\. .* https://github\.com/SWIMProjectUCB/SWIM"),
            ("job0\t1\t2\t3\t4\n", r"t\.tsv, line 1: 5 columns, where a SWIM trace has 6"),
            ("a\t1\t1\t1\t1\t1\n\nb\tx\t1\t1\t1\t1\n", r"line 3: submit time is 'x', not a whole"),
            ("a\t1\t1\t-5\t1\t1\n", r"line 1: map input is '-5'"),
            ("a\t1\t1\t1e9\t1\t1\n", r"line 1: map input is '1e9'"),
            ("a\t1\t1\t1\t\u0661\t1\n", r"line 1: shuffle is"),
            ("a\t1\t1\t1\t" + "9" * 5000 + "\t1\n", r"line 1: shuffle is '9{40}'"),
            ("\t1\t1\t1\t1\t1\n", r"line 1: the job has no id"),
        ],
    )
    def test_malformed_lines_are_named(self, tmp_path: Path, text: str, message: str) -> None:
        path = tmp_path / "t.tsv"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InvalidRequest, match=message):
            read_swim(path)

    def test_unreadable_files_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidRequest, match=r"there is no FB-2010.* is public"):
            read_swim(tmp_path)
        broken = tmp_path / "swim_fb2010.tsv.gz"
        broken.write_bytes(gzip.compress(b"a\t1\t1\t1\t1\t1\n" * 1000)[:30])
        with pytest.raises(InvalidRequest, match="cannot be read"):
            read_swim(tmp_path)
        broken.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(InvalidRequest, match="cannot be read"):
            read_swim(tmp_path)


class TestOpenb:
    def test_a_trace(self, tmp_path: Path) -> None:
        (tmp_path / "openb_nodes.csv").write_text(NODES)
        (tmp_path / "openb_pods.csv").write_text(PODS)
        nodes, pods = read_nodes(tmp_path), read_pods(tmp_path)
        assert [(node.name, node.gpus) for node in nodes] == [("n0", 0), ("n1", 8)]
        assert [(pod.name, pod.gpu_total, pod.deleted_s) for pod in pods] == [
            ("p0", 0, 7),
            ("p1", 460, 100),
        ]

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("p,1000,64,0,0,,BE,Failed,0\n", "line 2: 9 cells under 11 titles"),
            ("p,1000,64,0,0,,BE,Failed,zero,7,\n", "line 2: creation_time is 'zero'"),
            ("p,1000,64,0,0,,BE,Failed,9,7,\n", "line 2: deleted before it was created"),
            ("p,0,0,0,0,,BE,Failed,0,7,\n", "line 2: the pod asks for nothing"),
            ("p,1,1,2,500,,BE,Failed,0,7,\n", "line 2: 2 GPUs of 500 thousandths each"),
            ("p,1,1,1,1500,,BE,Failed,0,7,\n", "line 2: 1 GPUs of 1500 thousandths each"),
            (",1,1,0,0,,BE,Failed,0,7,\n", "line 2: it has no name"),
            ("", "openb_pods.csv holds no pods"),
        ],
    )
    def test_malformed_lines_are_named(self, tmp_path: Path, line: str, message: str) -> None:
        (tmp_path / "openb_pods.csv").write_text(POD_TITLES + line)
        with pytest.raises(InvalidRequest, match=message):
            read_pods(tmp_path)

    def test_other_files(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidRequest, match=r"no openb_node_list.*clusterdata"):
            read_nodes(tmp_path)
        path = tmp_path / "openb_nodes.csv"
        path.write_text("sn,cpu_milli,gpu\n")
        with pytest.raises(InvalidRequest, match="line 1: there is no column memory_mib, model"):
            read_nodes(tmp_path)
        with pytest.raises(InvalidRequest, match="not a folder"):
            read_nodes(path)
        path.write_text("sn,cpu_milli,memory_mib,gpu,model\nn,0,5,0,\n")
        with pytest.raises(InvalidRequest, match="line 2: the node has no CPUs"):
            read_nodes(tmp_path)


class TestMapReduce:
    @pytest.mark.parametrize(
        ("job", "counts"),
        [
            (SwimJob("j", 0, 0, 0, 0), (1, 0)),
            (SwimJob("j", 0, MAP_BYTES, 0, 5), (1, 0)),
            (SwimJob("j", 0, MAP_BYTES + 1, 1, 0), (2, 1)),
            (SwimJob("j", 0, 10 * MAP_BYTES, REDUCE_BYTES, REDUCE_BYTES), (10, 2)),
        ],
    )
    def test_task_counts(self, job: SwimJob, counts: tuple[int, int]) -> None:
        assert task_counts(job) == counts

    def test_every_scheduler_gets_the_same_tasks(self) -> None:
        swim = SwimJob("j", 0, 20 * MAP_BYTES, 5 * REDUCE_BYTES, 0)
        first, second = (make_job(swim, 3, _shapes()) for _ in range(2))
        other = make_job(swim, 4, _shapes())
        assert _sizes(first.stages) == _sizes(second.stages) != _sizes(other.stages)
        assert [len(stage) for stage in first.stages] == [20, 5]
        # About 256 MiB at 5 MiB a second, and 4 s to start.
        seconds = sorted(work.seconds for work in first.stages[0])
        assert 40 < seconds[len(seconds) // 2] < 75


def _shapes() -> dict[Size, Shape]:
    unit = Resources.parse("slots:1")
    return {size: Shape(unit, size) for _, size in (*MAPS, *REDUCES)}


def _sizes(stages: list[list[Work]]) -> list[tuple[Size, float]]:
    return [(work.shape.use, work.seconds) for stage in stages for work in stage]
