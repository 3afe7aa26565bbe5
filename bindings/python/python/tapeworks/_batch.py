"""Batches: captures of many days and venues into one folder of partitioned files."""

from __future__ import annotations

import functools
import os
import warnings
from typing import Any, Dict, Iterable, Optional, Sequence, Union

from . import _native
from ._reader import Path, _bar, names_of, paths_of
from ._types import Stale
from .errors import DataWarning, UsageError

__all__ = ["batch"]


def batch(
    inputs: Union[Path, Iterable[Path]],
    out: Path,
    *,
    schema: Union[str, Sequence[str]] = "mbo",
    format: str = "parquet",
    buckets: int = 16,
    exclude: Union[Path, Iterable[Path]] = (),
    executor: str = "threads",
    jobs: Optional[int] = None,
    address: Optional[str] = None,
    work: Optional[Path] = None,
    protocol: Optional[str] = None,
    date: Optional[str] = None,
    symbols: Union[str, Sequence[str], None] = None,
    stale: Stale = "flag",
    odd_lots: bool = False,
    ignore_price_bands: bool = False,
    overwrite: bool = False,
    verify: bool = False,
    dry_run: bool = False,
    progress: Optional[bool] = None,
) -> Dict[str, Any]:
    """Writes the records of captures into a folder of partitioned files, as ``tapeworks batch`` does.

    The files and the manifest have the same bytes whatever the executor and the number of jobs. A run that was stopped or killed goes on
    with the same call.

    Args:
        inputs: Captures and message files, folders, and patterns such as ``captures/**``. A package built with the feature ``cloud`` takes
            addresses too: ``s3://bucket/captures/**``, ``gs://…``, ``az://…``.
        out: The folder of the results, or an address.
        schema: The schemas, by DBN's names.
        format: ``parquet``, ``csv``, ``json``, ``dbn``, and ``.zst`` of each but Parquet.
        buckets: Partitions by symbol.
        exclude: Patterns of files to leave out.
        executor: ``threads`` of this process, or ``ray``: worker processes of Ray, on this or other hosts (the extra ``ray``).
        jobs: Tasks at the same time. Unless given, as many as there are processors, at most 4; on a cluster, as many as it has processors.
        address: Of ``ray``: the cluster to join. Unless given, Ray is started on this host, and ended with the run. A Ray that this
            process is connected to already is used, and stays.
        work: Where tasks keep objects and results while they are under way, if they come from or go to addresses. Unless given, the system's
            folder of temporary files, of each host.
        protocol: The protocol, instead of recognising it.
        date: The day of message files whose names have none.
        symbols: Only these.
        stale: The effect of a gap on the NBBO: ``flag`` or ``exclude``.
        odd_lots: Count odd lots in the NBBO at their own prices.
        ignore_price_bands: Count quotes beyond the price bands of the SIPs in the NBBO.
        overwrite: Remove results that are in the way.
        verify: Compare the bytes of all results with the hashes that they were made with, and do the tasks of damaged ones again.
        dry_run: Give the tasks, and write nothing.
        progress: A bar of tqdm; unless given, where a person sees it.

    Returns:
        The object of ``tapeworks batch --json``, or with ``dry_run`` that of ``--dry-run --json``. ``failed_inputs`` and ``failed_tasks``
        have what failed, which stops nothing else; a ``DataWarning`` says so too.

    Raises:
        InputError: No file can be used.
        OutputError: The folder cannot be written, another run works in it, or it has results that are in the way.
        ExecutorError: Ray is not installed, does not start, or is lost.
    """
    if executor not in ("threads", "ray"):
        raise UsageError(f"executor is '{executor}': expected one of threads, ray")
    if address is not None and executor != "ray":
        raise UsageError("address is for the executor ray")
    staged = None if work is None else os.fspath(work)
    performs: Any = None
    if executor == "ray" and not dry_run:
        from . import _ray

        # Before anything is begun.
        _ray.load()
        performs = functools.partial(_ray.perform, out=os.fspath(out), jobs=jobs, address=address, work=staged)
    bar = _bar(progress)

    def show(done: int, total: int) -> None:
        if bar is not None:
            bar.total = total
            bar.update(done - bar.n)

    try:
        summary, notices = _native.batch(
            paths_of(inputs),
            os.fspath(out),
            schemas=names_of(schema) or [],
            format=format,
            buckets=buckets,
            exclude=paths_of(exclude),
            jobs=jobs,
            protocol=protocol,
            date=date,
            symbols=names_of(symbols),
            stale=stale,
            odd_lots=odd_lots,
            ignore_price_bands=ignore_price_bands,
            overwrite=overwrite,
            verify=verify,
            dry_run=dry_run,
            work=staged,
            executor=performs,
            progress=show,
        )
    finally:
        if bar is not None:
            bar.close()
    failed = [one["error"] for one in summary["failed_inputs"]]
    failed += [f"{one['name']}: {one['error']}" for one in summary.get("failed_tasks", [])]
    for text in notices + failed + summary.get("unsound_results", []):
        warnings.warn(DataWarning(text), stacklevel=2)
    return summary
