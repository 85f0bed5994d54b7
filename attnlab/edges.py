"""The numerical edges by name, and why attention goes wrong at each: for whoever tries them and for whoever shows them."""

from __future__ import annotations

LARGE_LOGITS = "large logits"
VERY_NEGATIVE_LOGITS = "very negative logits"
ONE_VISIBLE_KEY = "one visible key"
BLIND_ROWS = "rows that see nothing"
EMPTY_SEQUENCE = "a zero-length sequence"

WHY = {
    LARGE_LOGITS: "float16 scores overflow before they are scaled; without the maximum, e to the power of them does",
    VERY_NEGATIVE_LOGITS: "without the maximum every weight is 0, and 0 ÷ 0 is not a number",
    ONE_VISIBLE_KEY: "softmax over one number is 1: O is V, and dQ is 0",
    BLIND_ROWS: "causal with more queries than keys: the rows above see no key and give 0",
    EMPTY_SEQUENCE: "a padded batch that holds an empty sequence: its rows give 0, the others are right",
}
