"""A framework with `avmesos` or `mesoshttp`: LIBRARY URLS TOTAL JOURNAL [SECRET]."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path
from typing import Any

from tests.harness.mesos_clients.work import Work


def main() -> None:
    library, urls, total, journal, *rest = sys.argv[1:]
    client_class: Any = importlib.import_module(f"{library}.client").MesosClient
    client_class.WAIT_TIME = 1
    work = Work(int(total), Path(journal))
    client: Any = client_class(
        urls.split(","), frameworkName=library, frameworkUser="nobody", max_reconnect=100
    )
    client.verify = False
    client.set_failover_timeout(120)
    if rest:
        client.set_credentials("alice", rest[0])

    def subscribed(driver: Any) -> None:
        work.note("subscribed", framework=client.frameworkId)
        # What was asked for while the master was away may be lost.
        driver.revive()

    def offers(offered: list[Any]) -> None:
        work.note("offers", number=len(offered))
        for offer in offered:
            tasks = [] if work.is_done else work.next_tasks(offer.get_offer()["agent_id"])
            if tasks:
                offer.accept(tasks, {"filters": {"refuse_seconds": 0.1}})
            else:
                offer.decline({"filters": {"refuse_seconds": 0.5}})
        if work.is_done:
            work.note("done")
            client.stop = True

    def update(found: dict[str, Any]) -> None:
        status = found["status"]
        task_id = status["task_id"]["value"]
        if work.update(task_id, status["state"], status.get("message", "")):
            client.get_driver().kill(status["agent_id"]["value"], task_id)

    client.on(client_class.SUBSCRIBED, subscribed)
    client.on(client_class.OFFERS, offers)
    client.on(client_class.UPDATE, update)
    client.on(client_class.ERROR, lambda message: work.note("error", message=message))
    thread = threading.Thread(target=client.register)
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
