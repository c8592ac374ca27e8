"""Made-up lore in English and Chinese: words that are as unequally common as those of a language."""

from __future__ import annotations

import random
from itertools import accumulate, product

from tavern_knowledge.api.knowledge import KnowledgeEntry

_SYLLABLES = "ba be do fa gri ha kel lo mar na or pel qui ra sen tor ul ver wyn zar".split()  # noqa: SIM905
_CHARACTERS = "山水龙城王剑夜火风雪月星河林海门书酒人狐影光金玉石木花鸟鱼马车船桥路村镇塔井灯钟歌舞梦誓"


class Language:
    """Words of a language, each so often as its rank says."""

    def __init__(self, words: list[str], between: str, seed: int) -> None:
        self._random = random.Random(seed)
        self._random.shuffle(words)
        self._words, self._between = words, between
        self._weights = list(accumulate(1 / (rank + 3) for rank in range(len(words))))

    def text(self, words: int) -> str:
        """Return a text of so many words."""
        return self._between.join(self._random.choices(self._words, cum_weights=self._weights, k=words))


def english() -> Language:
    """Return 8,000 words of three syllables, with spaces between."""
    return Language(["".join(parts) for parts in product(_SYLLABLES, repeat=3)], " ", 1)


def chinese() -> Language:
    """Return about 2,000 words of two characters, with nothing between."""
    return Language(["".join(parts) for parts in product(_CHARACTERS, repeat=2)], "", 2)


def entries(count: int) -> list[KnowledgeEntry]:
    """Return entries, every second one Chinese, of about 40 words each."""
    languages = (english(), chinese())
    return [
        KnowledgeEntry.model_validate(
            {
                "id": f"e{number}",
                "displayName": languages[number % 2].text(3),
                "content": {"value": languages[number % 2].text(40)},
                "activation_criteria": {"keywords": [languages[number % 2].text(1) for _ in range(2)]},
            }
        )
        for number in range(count)
    ]
