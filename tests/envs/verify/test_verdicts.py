"""Which verdict when: kinds of answers, one by one, that are easily paid by mistake or refused by mistake."""

from __future__ import annotations

import pytest

from atrl_envs.verify import Verdict, verify_texts

C, W, M, U, G = Verdict.CORRECT, Verdict.WRONG, Verdict.MISSING, Verdict.UNDECIDED, Verdict.INVALID_GOLD

PLAIN = [
    ("42", "42", C), (" 42\n", "42", C), ("42.", "42", C), ("12+", "12", W), ("1,2,3", "1", W),
    ("", "42", M), ("  ", "0", M), ("42 42", "42", W), ("4 2", "42", W), ("=42", "42", W),
    ("12+30=42", "42", C), ("12+30", "42", W), ("--5", "5", W), ("-", "0", W), (".", "0", W),
    ("1.2.3", "1.2", W), ("4,2", "42", W), ("0,123", "123", W), ("1,0000", "10000", W), ("12*", "12", W),
    ("(42", "42", W), ("42)", "42", W), ("about 42", "42", U), ("2^10", "1024", U), ("5!", "5", U),
    ("42", "", G), ("", "", G), ("42", "forty-two", G), ("42", "1,2", G), ("42", "1/0", G),
    ("nan", "nan", G), ("The answer is 42.", "42", U), ("answer: 42", "42", U), ('"42"', "42", C),
]  # fmt: skip

BOXED = [
    ("42 million", "42", U), ("42 squared", "42", U), ("5 M", "5", U), ("2x", "2", U), ("2 x", "2", U),
    ("x", "42", U), ("42 apples", "42", C), ("5 cm^2", "5", C), ("15\\mbox{ cm}^2", "225", W),
    ("9.8 m/s^2", "9.8", C), ("5m", "5", U), ("\\pi", "3", U), ("2\\pi", "2", U), ("42 or 43", "42", W),
    ("42 or 43", "43", W), ("\\{1,2\\}", "1", W), ("42 \\pm 5", "42", W), ("40-45", "40", W),
    ("40\\text{ to }45", "45", W), ("(1,2)", "12", W), ("[1,2]", "12", W), ("1{,}234", "1234", C),
    ("1,23", "123", W), ("12,34,567", "1234567", W), ("1 234 567", "1234567", C), ("123 456", "123456", C),
    ("1234 567", "1234567", W), ("2x = 42", "42", U), ("-x = 42", "42", U), ("x = 41 = 42", "42", U),
    ("x \\neq 42", "42", U), ("x = 42", "42", C), ("\\theta = 42^\\circ", "42", C), ("6*7 = 42", "42", C),
    ("6*7 = 42", "6", W), ("f(2) = 42", "42", C), ("42 = 6*7", "42", U), ("x=1, y=42", "42", U),
    ("not x = 42", "42", U), ("28", "28\\%", U), ("28\\%", "28\\%", C), ("28\\%", "28", C),
    ("28\\%", "0.28", W), ("\\frac{1}{2", "1/2", U), ("2\\frac{3}{2}", "7/2", U),
    ("\\frac{1}{2}^2", "1/2", U), ("1\\frac12", "3/2", C), ("-1\\frac12", "-3/2", C),
    ("\\frac{-1}{-2}", "1/2", C), ("1.5/2", "3/4", U), ("50 cents", "0.5", W), ("\\text{42}", "42", C),
    ("", "0", M), ("10^6", "106", U), ("1e6", "16", W), ("1 \\times 10^6", "1000000", C),
    ("2 x 10^12", "2000000000000", C), ("1.2 \\times 10^{-3}", "0.0012", C), ("７", "7", C), ("−７", "7", W),
    ("\\$-5", "-5", C), ("-\\$5", "5", W), ("The answer is 42", "42", C), ("the final answer is: 42.", "42", C),
    ("\\text{The answer is }42", "42", C), ("\\text{The answer is 42.}", "42", C), ("the answer is not 42", "42", U),
    ("the answer isn't 42", "42", U), ("Answer: 42", "42", C), ("Total cost: \\$42", "42", C),
    ("not sure: 42", "42", U),
    ("guess: 42", "42", U), ("A: 42", "42", U), ("time: 3:30", "3", U), ("ratio: 3:4", "4", U), ("x: 42", "42", U),
    ("3 x 6 = 18", "18", C), ("3 x 6 = 18", "3", W), ("3x = 18", "18", U), ("3 x = 18", "18", U),
    ("m + n = 42", "42", C), ("m+1 = 42", "42", U), ("2m+n = 42", "42", U), ("f'(2) = 42", "42", C),
    ("42 sq. ft.", "42", C), ("42 p.m.", "42", C), ("42 hrs. or so", "42", U), ("42 dollars a day", "42", C),
    ("42 a day", "42", C), ("42 a", "42", U), ("2/3 of the cake", "2/3", C), ("2/3 of 9", "2/3", U),
    ("2/3 of x", "2/3", U), ("42^\\circ C", "42", C), ("42^\\circ\\text{C}", "42", C), ("42^\\circ x", "42", U),
    ("42^{\\circ} \\mathrm{ F}", "42", C), ("\\mathit{42}", "42", C), ("\\boldsymbol{42}", "42", C),
    ("~42", "42", U), ("42~cm", "42", C), ("1~234", "1234", C), ("28 pct", "28\\%", C), ("28 pct", "0.28", W),
    ("28 percentage", "28\\%", C), ("US\\$42", "42", C), ("₹42", "42", C), ("￥42", "42", C), ("-₹42", "42", W),
    ("42¢", "42", C), ("`42`", "42", C), ("\"42\"", "42", C), ("\"42", "42", U), ("42\\\\", "42", C),
    ("4\\\\2", "42", U), ("42\u200b", "42", C), ("\ufeff42", "42", C), ("4\u200b2", "42", W), ("1\u200b234", "1234", W),
]  # fmt: skip

WHOLE = [
    ("boxed", "\\boxed{42} or \\boxed{43}", "42", W), ("boxed", "\\boxed{4", "4", M),
    ("boxed", "\\boxed{7} \\boxed{4", "7", C), ("boxed", "<think>\\boxed{42}</think> done", "42", M),
    ("boxed", "<think>\\boxed{42}", "42", M), ("boxed", "\\boxed{42}<think>\\boxed{1}", "42", C),
    ("boxed", "<!-- \\boxed{42} -->", "42", U), ("boxed", "\\boxed 42 so", "42", C),
    ("boxed", "\\boxed{1<!--}--> \\boxed{42}", "42", C), ("boxed", "\\boxed {42}", "42", C),
    ("boxed", "\\boxed{}", "0", M), ("boxed", "{{{{\\boxed{42}", "42", C),
    ("boxed", "\\boxed{42}}}}", "42", C), ("boxed", "\\boxed{\\}42}", "42", U),
    ("boxed", "\\boxed{42\\\\}", "42", C), ("boxed", "\\boxed{42\\\\} or 43}", "42", C),
    ("boxed", "\\boxed{42\\}", "42", M),
    ("gsm8k_hash", "####\n42", "42", M), ("gsm8k_hash", "#### 42\r\n7", "42", C),
    ("gsm8k_hash", "######42", "42", C), ("gsm8k_hash", "### 42", "42", M),
    ("gsm8k_hash", "<think>#### 42</think>", "42", M), ("gsm8k_hash", "#### 4\n2", "42", W),
    ("answer_tag", "<answer>42", "42", M), ("answer_tag", "42</answer>", "42", M),
    ("answer_tag", "<answer></answer>", "0", M), ("answer_tag", "<think><answer>42</answer>", "42", M),
    ("answer_tag", "<answer>42</answer><answer>", "42", C),
    ("answer_tag", "<think>a</think><answer>42</answer>", "42", C),
    ("answer_tag", "<ANSWER>42</ANSWER>", "42", M), ("answer_tag", "</answer><answer>42", "42", M),
    ("answer_tag", "<answer>1</answer><answer>42</answer><answer>3</answer>", "42", W),
    ("last_number", "no number", "42", M), ("last_number", "B2B", "2", M), ("last_number", "2nd", "2", M),
    ("last_number", "20 000", "0", W), ("last_number", "20 000", "20000", C), ("last_number", "was .5", "5", W),
    ("last_number", "was .5", "0.5", C), ("last_number", "10^{3}", "3", U),
    ("last_number", "\\frac{1}{2}", "2", W), ("last_number", "at 7:32", "32", U),
    ("last_number", "5 ± 3", "3", U), ("last_number", "it is 42 or 43", "43", U),
    ("last_number", "is 42, the 3rd", "42", C), ("last_number", "答案是４２。", "42", C),
    ("last_number", "3 million", "3", U), ("last_number", "is 10\\pi", "10", U),
    ("last_number", "x" * 500 + " 42 " + "y" * 500, "42", C), ("last_number", "1" * 90, "1" * 90, C),
    ("last_number", "1" * 500, "1" * 500, C), ("last_number", "1" * 600, "1" * 600, U),
    ("last_number", "1 2 3 4 5 6 7 8 9 10 11 12", "7", W), ("last_number", "--2", "2", U),
    ("last_number", "v2.1", "1", M),
]  # fmt: skip

RUNNING = [
    # Numbers of several parts.
    ("about 20 000 people", "20000", C), ("1 234 567", "1234567", C), ("1 000 00", "0", U),
    ("12 345.67", "12345.67", C), ("98 99 100 101", "101", U), ("5 apples 12 345", "12345", C),
    ("1\u00a0234 km", "1234", C), ("1\\,234", "1234", C), ("1{,}234{,}567.5 is it", "1234567.5", C),
    ("1,\\!234", "1234", C), ("is 1 1/2", "3/2", C), ("-1 1/2 cups", "-3/2", C), ("1\\frac12 km", "3/2", C),
    ("1 \\frac{1}{2}", "3/2", C), ("1000 1/2", "2001/2", C), ("2 150/300", "5/2", U), ("1 / 2", "1/2", C),
    ("6/2", "3", C), ("3/-4", "-3/4", C), ("1/2/3", "1/2", U), ("\\frac{-3} {4}", "-3/4", C),
    ("so -\\frac{ 1 }{ 2 }.", "-0.5", C), ("\\frac{x}{2}", "2", U), ("\\frac{3}{x}", "3", U),
    ("x^{\\frac{1}{2}}", "1/2", U), ("3 \\times 10^{5}", "300000", C), ("3\\times10^5", "300000", C),
    ("3 \\times 10^{12}", "3e12", C), ("3 \\times 10^12", "3e12", U), ("1.5 × 10^3 m", "1500", C),
    ("2*10^3", "2000", C), ("2 x 10^12", "2e12", C), ("3x10^5", "300000", C),
    ("12 345 × 10^3", "12345000", C), ("7 12 × 10^3", "12000", U), ("3 × 10", "10", C), ("3 * 4", "4", C),
    ("10^5", "5", U), ("1.2e-3.", "0.0012", C), ("42^\\circ", "42", C), ("42^{\\circ}C", "42", C),
    # What stands around a number and changes it.
    ("2\\pi", "2", U), ("2 \\pi", "2", U), ("2π", "2", U), ("\\sqrt{2}", "2", U), ("√2", "2", U),
    ("2 \\sqrt{x}", "2", U), ("20 ^2", "20", U), ("101_2", "101", U), ("3½", "3", U), ("3 ½", "3", U),
    ("5 k", "5", U), ("5M", "5", M), ("5 M", "5", U), ("5m", "5", C), ("14\ndozen", "14", U),
    ("6 and a half", "6", U), ("5 or more", "5", U), ("minus 5", "5", U), ("negative $5", "5", U),
    ("-$5", "-5", C), ("-$ 5", "-5", C), ("-**5**", "5", U), ("x^-1", "1", M), ("x^{-1} = 3", "3", C),
    ("1'234", "234", U), ("5-.5", "5", U), ("x^2.345", "345", M), ("12 m2", "2", W), ("12 m2", "12", C),
    ("2(x+1)", "2", U), ("2(x", "2", U), ("6 * y", "6", U), ("2**x", "2", U), ("3 ± x", "3", U),
    ("6 ÷ x", "6", U), ("40~45", "45", U), ("5!", "5", U), ("at 1:30", "30", U), ("1..5", "5", U),
    ("**73** people", "73", C), ("5\\text{ million}", "5", U), ("5\\text{ cm}", "5", C),
    ("5 \\text{ apples}", "5", C), ("$5$ million", "5", U), ("(5)", "5", C), ("[3, 4]", "4", C),
    ("= 42 \\end{align*}", "42", C), ("1٢", "1", U), ("42 (see above)", "42", C), ("32, 349", "349", C),
    ("42 - that is", "42", C),
    # Signs, slashes and marks beyond ASCII.
    ("x = ‑42", "42", W), ("x = ‑42", "-42", C), ("is ‒42", "-42", C), ("x = —42", "42", U), ("total — 42", "42", C),
    ("42—that is it", "42", C), ("1⁄2", "2", W), ("1⁄2", "1/2", C), ("３．５", "3.5", C), ("3，500", "3500", C),
    ("是42，所以", "42", C), ("答案：42", "42", C), ("3：42", "42", U), ("5∶42", "42", U), ("42‰", "42", U),
    ("42万", "42", U), ("42 亿", "42", U), ("42千克", "42", C), ("-€42", "42", W), ("-€42", "-42", C),
    ("−£ 42", "-42", C), ("42€", "42", C), ("-$\\$42$", "42", W), ("-$\\frac{1}{2}$", "-1/2", C),
    ("-$\\frac{1}{2}$", "1/2", W), ("-\u200b42", "42", W), ("\u200b42", "42", C), ("42°30", "30", U),
    ("42° 30", "30", C), ("42°C", "42", C),
    # Functions and operators before a number.
    ("\\sqrt 42", "42", U), ("\\ln 42", "42", U), ("log 42", "42", U), ("sqrt(42)", "42", U), ("a sin 42", "42", U),
    ("\\geq 42", "42", C), ("{10 \\choose 3}", "3", U), ("2 ** 42", "42", U), ("is 2 **42**", "42", C),
    ("-$ 42", "42", W), ("\\sqrt\\frac{1}{4}", "4", U), ("\\sqrt[3]{8}", "8", U), ("42\\logπ", "42", U),
    ("is [42]", "42", C), ("see [42], [43]", "43", C),
]  # fmt: skip


@pytest.mark.parametrize(("text", "gold", "verdict"), PLAIN)
def test_plain(text: str, gold: str, verdict: Verdict) -> None:
    assert verify_texts([text], [gold], style="plain") == [verdict]


@pytest.mark.parametrize(("content", "gold", "verdict"), BOXED)
def test_boxed(content: str, gold: str, verdict: Verdict) -> None:
    text = f"so \\boxed{{{content}}}"
    if content.count("{") != content.count("}"):
        text = f"#### {content}"
        assert verify_texts([text], [gold], style="gsm8k_hash") == [verdict]
        return
    assert verify_texts([text], [gold], style="boxed") == [verdict]


@pytest.mark.parametrize(("style", "text", "gold", "verdict"), WHOLE)
def test_whole_texts(style: str, text: str, gold: str, verdict: Verdict) -> None:
    assert verify_texts([text], [gold], style=style) == [verdict]


@pytest.mark.parametrize(("text", "gold", "verdict"), RUNNING)
def test_last_number(text: str, gold: str, verdict: Verdict) -> None:
    assert verify_texts([text], [gold], style="last_number") == [verdict]
    # So it is at the end of a long text; there a number before it may be out of sight.
    allowed = [verdict] if verdict != M else [W, U]
    assert verify_texts([f"17 {'word ' * 300}: {text}"], [gold], style="last_number")[0] in allowed


@pytest.mark.parametrize("mark", ["<|im_end|>", "<|endoftext|>"])
def test_written_end_marks_end_a_text(mark: str) -> None:
    assert verify_texts(
        [f"#### 42{mark} #### 7", f"I give up{mark}#### 42"], ["42", "42"], style="gsm8k_hash"
    ) == [C, M]


def test_arguments() -> None:
    with pytest.raises(ValueError, match="one gold each"):
        verify_texts(["1"], [])
    with pytest.raises(ValueError, match="known styles: plain"):
        verify_texts(["1"], ["1"], style="box")
    assert verify_texts([], []) == []
