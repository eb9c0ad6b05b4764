"""Trains a tiny Chinese word separator, so that the real separator runs without its model."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

SENTENCES = """
今天 天气 很 好 。|我们 去 公园 散步 吧 ！|他 在 北京 大学 学习 中文 。|请 问 火车站 在 哪里 ？
明天 可能 会 下雨 。|我 喜欢 喝 茶 ， 不 喜欢 喝 咖啡 。|中国 人民 银行 发布 了 新 的 报告 。
这 本 书 很 有 意思 。|你 叫 什么 名字 ？|现在 几 点 了 ？|他们 正在 讨论 这个 问题 。
上海 是 一个 大 城市 。|水果 和 蔬菜 对 身体 好 。|今天 晚上 我们 看 电影 。
老师 让 学生 回答 问题 。
"""


def separator(home: Path) -> Path:
    """Put the model where a downloaded one would be under PKUSEG_HOME."""
    import spacy_pkuseg

    sentences = home / "sentences.txt"
    lines = SENTENCES.strip().replace("|", "\n") + "\n"
    sentences.write_text(lines * 3, encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()):
        model = home / "spacy_ontonotes"
        spacy_pkuseg.train(str(sentences), str(sentences), str(model), train_iter=5)
    return home
