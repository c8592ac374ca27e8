"""Graphs of ComfyUI: the form that its editor saves (nodes with places and links), and that of its API (values and
links by node). Reroutes and primitives are followed to what they carry, frames and notes become comments."""

from __future__ import annotations

from typing import Any

from tavern_host.contracts.errors import InvalidInput
from tavern_workflows.foreign.comfyui_subgraphs import Unfolded
from tavern_workflows.foreign.graph import (
    MAX_LINKS,
    MAX_NODES,
    MAX_TEXT,
    ForeignGraph,
    ForeignLink,
    ForeignNode,
    ForeignNote,
    key_of,
    object_in,
    objects_in,
    pair_of,
    slot_key,
    text_of,
)

_NOTES = ("Note", "MarkdownNote")
_MUTED, _BYPASSED = 2, 4
_AFTER_SEED = "control_after_generate"
_WIDGETS = {
    "KSampler": "seed control_after_generate steps cfg sampler_name scheduler denoise",
    "KSamplerAdvanced": "add_noise noise_seed control_after_generate steps cfg sampler_name scheduler start_at_step "
    "end_at_step return_with_leftover_noise",
    "CheckpointLoaderSimple": "ckpt_name",
    "CLIPTextEncode": "text",
    "EmptyLatentImage": "width height batch_size",
    "SaveImage": "filename_prefix",
    "LoadImage": "image upload",
    "VAELoader": "vae_name",
    "LoraLoader": "lora_name strength_model strength_clip",
    "ControlNetLoader": "control_net_name",
    "LatentUpscale": "upscale_method width height crop",
    "UpscaleModelLoader": "model_name",
    "CLIPSetLastLayer": "stop_at_clip_layer",
}
"""What the values of usual nodes are called; older files list them without names."""


def read_comfyui(document: dict[str, Any]) -> ForeignGraph:
    """Return a graph of either form; of a picture's texts the one with places is preferred. Raises `InvalidInput`."""
    for key in ("workflow", "prompt"):
        if isinstance(inner := document.get(key), dict) and "nodes" not in document:
            return read_comfyui(inner)
    graph = ForeignGraph("ComfyUI", "comfyui")
    if isinstance(document.get("nodes"), list):
        _Editor(document, graph).read()
    else:
        _read_api(document, graph)
    return graph


def _read_api(document: dict[str, Any], graph: ForeignGraph) -> None:
    if len(document) > MAX_NODES:
        raise InvalidInput(f"the graph has {len(document):,} nodes; at most {MAX_NODES:,} are imported")
    entries = {key: one for key, one in document.items() if isinstance(one, dict) and "class_type" in one}
    for key, entry in entries.items():
        title = text_of(object_in(entry.get("_meta")).get("title"))
        node = ForeignNode(key, text_of(entry.get("class_type"), 200) or "unknown", title)
        for name, value in object_in(entry.get("inputs")).items():
            if _is_link(value, entries):
                slot = slot_key(name, node.inputs)
                node.inputs[slot] = "*"
                graph.links.append(ForeignLink(key_of(value[0]), f"output_{value[1]}", key, slot))
            else:
                node.values[slot_key(name)] = value
        graph.nodes.append(node)
    by_key = {node.key: node for node in graph.nodes}
    for link in graph.links:
        by_key[link.source].outputs[link.output] = "*"


def _is_link(value: Any, entries: dict[str, Any]) -> bool:
    return isinstance(value, list) and len(value) == 2 and key_of(value[0]) in entries and type(value[1]) is int


class _Editor:
    """Reads the form of the editor."""

    def __init__(self, document: dict[str, Any], graph: ForeignGraph) -> None:
        self._document, self._graph = document, graph
        links = document.get("links")
        if isinstance(links, list) and len(links) > MAX_LINKS:
            raise InvalidInput(f"the graph has {len(links):,} links; at most {MAX_LINKS:,} are imported")
        unfolded = Unfolded(document)
        self._entries, self._links, self._frames = unfolded.nodes, unfolded.links, unfolded.frames
        self._subgraphs = unfolded.folded

    def read(self) -> None:
        """Fill the graph."""
        graph = self._graph
        graph.name = text_of(object_in(self._document.get("extra")).get("title"))
        outputs: dict[str, list[str]] = {}
        kept: dict[str, tuple[ForeignNode, dict[str, Any]]] = {}
        for key, entry in self._entries.items():
            kind = text_of(entry.get("type"), 200) or "unknown"
            if kind in _NOTES:
                self._note(entry)
            elif kind not in ("Reroute", "PrimitiveNode"):
                kept[key] = self._node(key, kind, entry), entry
                outputs[key] = list(kept[key][0].outputs)
        for node, entry in kept.values():
            self._connect(node, entry, outputs)
        graph.nodes = [node for node, _ in kept.values()]
        for frame in self._frames:
            box = frame.get("bounding")
            corner, size = (pair_of(box[:2]), pair_of(box[2:])) if isinstance(box, list) else (None, None)
            graph.notes.append(ForeignNote(text_of(frame.get("title"), MAX_TEXT), corner, size))

    def _note(self, entry: dict[str, Any]) -> None:
        values = entry.get("widgets_values")
        text = text_of(values[0], MAX_TEXT) if isinstance(values, list) and values else ""
        self._graph.notes.append(ForeignNote(text, pair_of(entry.get("pos")), pair_of(entry.get("size"))))

    def _node(self, key: str, kind: str, entry: dict[str, Any]) -> ForeignNode:
        title = text_of(entry.get("title"))
        if kind in self._subgraphs:
            kind, title = f"subgraph {self._subgraphs[kind]}", title or self._subgraphs[kind]
            self._graph.without_effect.append(f"{title} is a subgraph that holds itself: it stands as one node")
        mode = entry.get("mode")
        if mode == _MUTED:
            self._graph.without_effect.append(f"{title or kind} ({key}) was muted with what follows it; it is bypassed")
        node = ForeignNode(key, kind, title, pair_of(entry.get("pos")))
        node.bypassed = mode in (_MUTED, _BYPASSED)
        for slot in objects_in(entry.get("outputs"), "outputs"):
            node.outputs[slot_key(slot.get("name"), node.outputs)] = text_of(slot.get("type"), 100) or "*"
        node.values = _values(kind, entry)
        return node

    def _connect(self, node: ForeignNode, entry: dict[str, Any], outputs: dict[str, list[str]]) -> None:
        for slot in objects_in(entry.get("inputs"), "inputs"):
            link = self._links.get(key_of(slot.get("link")))
            if link is None and isinstance(slot.get("widget"), dict):
                continue  # it is a value
            name = slot_key(slot.get("name"), node.inputs)
            node.inputs[name] = text_of(slot.get("type"), 100) or "*"
            if link is None:
                continue
            source, place = self._source(link)
            if source in outputs:
                known = outputs[source]
                output = known[place] if 0 <= place < len(known) else f"output_{place}"
                self._graph.links.append(ForeignLink(source, output, node.key, name))
            elif (primitive := self._entries.get(source)) is not None and primitive.get("type") == "PrimitiveNode":
                values = primitive.get("widgets_values")
                del node.inputs[name]
                if isinstance(values, list) and values:
                    node.values[name] = values[0]
            else:
                self._graph.without_effect.append(f"the link to {name} of {node.title or node.type} leads nowhere")

    def _source(self, link: tuple[str, int, str, int]) -> tuple[str, int]:
        """Return where a link begins, through reroutes; nowhere where they lead in a circle."""
        seen: set[str] = set()
        source, place = link[0], link[1]
        while (entry := self._entries.get(source)) is not None and entry.get("type") == "Reroute":
            inputs = objects_in(entry.get("inputs"), "inputs")
            before = self._links.get(key_of(inputs[0].get("link"))) if inputs else None
            if source in seen or before is None:
                return "", 0
            seen.add(source)
            source, place = before[0], before[1]
        return source, place


def _values(kind: str, entry: dict[str, Any]) -> dict[str, Any]:
    values = entry.get("widgets_values")
    if isinstance(values, dict):
        return {slot_key(name): value for name, value in values.items()}
    if not isinstance(values, list) or not values:
        return {}
    inputs = objects_in(entry.get("inputs"), "inputs")
    names = [text_of(object_in(one.get("widget")).get("name")) for one in inputs if isinstance(one.get("widget"), dict)]
    known = _WIDGETS.get(kind, "").split()
    if len(known) >= len(values):
        names = known
    elif len(names) < len(values):  # what follows a seed is no input of its own
        places = [place for place, name in enumerate(names) if name in ("seed", "noise_seed")]
        names = [*names[: places[0] + 1], _AFTER_SEED, *names[places[0] + 1 :]] if places else names
    found: dict[str, Any] = {}
    for place, value in enumerate(values):
        found[slot_key(names[place] if place < len(names) else f"value_{place}", found)] = value
    return found
