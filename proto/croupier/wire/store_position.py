"""Positions of a store to and from the wire."""

from __future__ import annotations

from croupier.model.store_position import StorePosition
from croupier.v1 import agent_pb2 as pb


def position_to_wire(position: StorePosition) -> pb.StorePosition:
    """Return the message for `position`."""
    return pb.StorePosition(
        generation=position.generation,
        epoch=position.epoch,
        term=position.term,
        commit=position.commit,
        proof=bytes.fromhex(position.proof),
    )


def position_from_wire(wire: pb.StorePosition) -> StorePosition:
    """Return the position in `wire`, with any proof; raises InvalidRequest if it is absurd."""
    position = StorePosition(
        wire.generation, wire.epoch, wire.term[:255], wire.commit, wire.proof[:64].hex()
    )
    position.check()
    return position
