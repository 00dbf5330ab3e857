"""Flower's Grid in one process: messages are copied and handed to a ClientApp at once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

Tamper = Callable[[int, Message, Message], list[Message]]  # (place, request, honest reply) -> what arrives


class OneProcessGrid(Grid):
    """`apps` maps a place to its ClientApp; `tamper` stands for what a dishonest site or network does to a reply."""

    def __init__(self, apps: dict[int, ClientApp], *, keys: dict[int, bytes] | None = None) -> None:
        self.apps, self.keys = apps, keys or {}
        self.tamper: Tamper = lambda place, request, reply: [reply]
        self.asked: list[int] = []
        self._replies: dict[str, list[Message]] = {}
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.apps)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=place, public_key=self.keys.get(place, b"")) for place in self.apps]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            place = message.metadata.dst_node_id
            self.asked.append(place)
            name = f"message-{len(self.asked)}"
            message.metadata.__dict__["_message_id"] = name
            context = Context(1, place, {}, RecordDict(), {})
            reply = self.apps[place](copy.deepcopy(message), context)
            self._replies[name] = copy.deepcopy(self.tamper(place, message, reply))
            ids.append(name)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [reply for name in message_ids for reply in self._replies.pop(name, [])]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError
