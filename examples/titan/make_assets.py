"""Makes what TorchTitan reads besides its configuration, without a network: a byte-level tokenizer and C4-like text.

python make_assets.py [DIR]        (default: assets/ beside this file)
"""

import json
import random
import sys
from pathlib import Path

SAMPLES = 2000
WORDS_PER_SAMPLE = 400
SYLLABLES = ("ba", "co", "da", "el", "fi", "gu", "ha", "in", "jo", "ka", "lu", "me", "no", "or", "pe", "ri", "sa", "tu")


def byte_symbols() -> list[str]:
    """The 256 printable symbols that byte-level tokenizers use for bytes, in byte order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    symbols, extra = [], 0
    for byte in range(256):
        if byte in printable:
            symbols.append(chr(byte))
        else:
            symbols.append(chr(256 + extra))
            extra += 1
    return symbols


def write_tokenizer(directory: Path) -> None:
    """One token per byte, and the two special tokens of Llama 3."""
    directory.mkdir(parents=True, exist_ok=True)
    vocabulary = {symbol: index for index, symbol in enumerate(byte_symbols())}
    specials = ["<|begin_of_text|>", "<|end_of_text|>"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": len(vocabulary) + i, "content": content, **flags} for i, content in enumerate(specials)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"bos_token": specials[0], "eos_token": specials[1], "tokenizer_class": "PreTrainedTokenizerFast"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def write_text(directory: Path) -> None:
    """JSON lines with the fields of C4; the same text every time."""
    directory.mkdir(parents=True, exist_ok=True)
    source = random.Random(0)
    words = ["".join(source.choices(SYLLABLES, k=source.randint(1, 4))) for _ in range(1000)]
    with (directory / "data.json").open("w") as file:
        for index in range(SAMPLES):
            text = " ".join(source.choices(words, k=WORDS_PER_SAMPLE)).capitalize() + "."
            line = {"text": text, "timestamp": "2019-04-25T12:57:54Z", "url": f"https://example.org/{index}"}
            file.write(json.dumps(line) + "\n")


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "assets"
    write_tokenizer(directory / "tokenizer")
    write_text(directory / "c4_test")
    print(directory)


if __name__ == "__main__":
    main()
