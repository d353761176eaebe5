"""Kinds of answers that the host judges, in groups: (answer, gold, verdict). Each stands for a way to be wrong."""

from __future__ import annotations

from atrl_envs.verify import Verdict

C, W, M, U, G = Verdict.CORRECT, Verdict.WRONG, Verdict.MISSING, Verdict.UNDECIDED, Verdict.INVALID_GOLD

FORMULAS = [
    (r"2\sqrt{2}", r"\sqrt8", C), (r"\frac{\sqrt{3}}{3}", r"\frac1{\sqrt3}", C), (r"\sqrt[3]{8}", "2", C),
    (r"2^{1/2}", r"\sqrt2", C), (r"\pi/2", r"\frac12\pi", C), ("3.14", r"\pi", W), ("2π", r"2\pi", C),
    ("3.141592653589793238462643383279", r"\pi", W), (r"\frac{355}{113}", r"\pi", W), ("√2", r"\sqrt{2}", C),
    (r"x^2-1", "(x-1)(x+1)", C), ("x^2+1", "x^2-1", W), (r"\frac{x^2-1}{x-1}", "x+1", C), ("ab", "ba", C),
    ("2ab", "2a", W), (r"\sin^2 x+\cos^2 x", "1", C), (r"\sin 2x", r"2\sin x\cos x", C),
    (r"\tan^{-1} 2", r"\arctan 2", C), (r"\log_2 8", "3", C), (r"\lg 100", "2", C), (r"\ln 4", r"2\ln 2", C),
    (r"\log_a b", r"\frac{\ln b}{\ln a}", C), ("5!", "120", C), (r"\binom52", "10", C), ("n!", "n(n-1)!", C),
    ("2^10", "1024", C), ("2**10", "1024", C), ("|-3|", "3", C), (r"\left\lfloor 3.7 \right\rfloor", "3", C),
    ("3+4i", "4i+3", C), ("3+4i", "3-4i", W), ("i^2", "-1", C), (r"\frac{1}{1+i}", r"\frac{1-i}{2}", C),
    (r"e^{i\theta}", r"\cos\theta+i\sin\theta", C), (r"\mathrm{e}^{x}", "e^x", C),
    (r"\sum_{i=1}^{10} i", "55", C), (r"\sum_{k=1}^{n} k", r"\frac{n(n+1)}{2}", C),
    (r"\int_0^1 x^2 dx", r"\frac13", C), (r"\lim_{x\to 0}\frac{\sin x}{x}", "1", C), ("x", "y", W),
    ("X", "x", W), ("x_1", "x_2", W), ("x_{1}+x_2", "x_2+x_1", C), (r"\sqrt{x^2}", "x", W),
    (r"\sqrt{x^2}", "|x|", C), (r"x^{\frac23}", r"\sqrt[3]{x^2}", C), (r"\sqrt{ab}", r"\sqrt a\sqrt b", C),
    ("0.25x", r"\frac{x}{4}", C), ("x^{0.5}", r"\sqrt{x}", C), ("1,000x", "1000x", C),
    (r"3\cdot{\frac12}", "1.5", C), (r"2(\frac{1}{2})", "1", C), (r"2\frac{3}{2}", "7/2", U), ("4 2", "8", W),
    ("4 2", "42", W), ("--5", "5", W), (r"1011_{2}", "1011_2", C), ("1011", "1011_2", U),
    (r"\overline{AB}", r"\overline{AB}", C), (r"\angle A", r"\angle B", U), ("2*sqrt(3)", r"2\sqrt3", C),
    ("sqrt(3)/2", r"\frac{\sqrt3}{2}", C), ("2pi", r"2\pi", C), ("pi/2", r"\frac{\pi}{2}", C),
    (r"{1 \over 2}", "1/2", C), (r"\cos 60^\circ", "1/2", C), (r"\sin^2 30^\circ", "1/4", C),
    (r"4\sin 20^\circ", r"4\sin(20^{\circ})", C), ("42_{10}", "42", C), ("42_{8}", "42", W), ("{-}42", "-42", C),
]  # fmt: skip

EXACT = [
    (r"\frac{1}{2^{98}}", r"\frac{1}{2^{99}}", W), (r"\frac{1}{2006!}", r"\frac{1}{2004!}", W),
    ("10^{100}+1", "10^{100}", W), (r"\sqrt{2}+10^{-300}", r"\sqrt2", W), ("x+10^{-300}", "x", W),
    ("x(1+10^{-300})", "x", W), ("0.1+0.2", "0.3", C), ("0.30000000000000004", "0.3", W),
    ("0.333333333333333333333", r"\frac13", W), ("9007199254740993", "9007199254740992", W),
    (r"1.414213562373095048801688724209698078569671875376948073176679737990732478", r"\sqrt{2}", W),
    (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}", C), (r"2\cos\frac{\pi}{5}", r"\frac{1+\sqrt5}{2}", C),
    (r"e^{\pi\sqrt{163}}", "262537412640768744", W), (r"0.\overline{36}", r"\frac{4}{11}", C),
    (r"0.3\overline{6}", "11/30", C), (r"1.\overline{9}", "2", C), ("0.333", r"0.\overline{3}", W),
    ("1.5 million", "1500000", C), (r"3\text{ dozen}", "36", C), ("2 million", "2", W), ("½", "0.5", C),
    ("3½", "3.5", C), ("6.02e23", r"6.02\times10^{23}", C), (r"-\frac{1}{2}", r"\frac{1}{-2}", C),
    ("1" * 500, "1" * 500, C), ("1" * 500, "1" * 499 + "2", W),
]  # fmt: skip

UNITS = [
    (r"5\sqrt{2}\text{ cm}", r"5\sqrt2", C), (r"9\pi", r"9\pi \text{ cm}^2", C),
    (r"25\pi \text{ square units}", r"25\pi", C), (r"12\text{ m}", r"12\text{ km}", U),
    (r"3\times 10^8 \text{ m/s}", "300000000", C), (r"\$5\pi", r"5\pi", C), ("28", r"28\%", U),
    ("0.28", r"28\%", U), ("27", r"28\%", W), (r"28\%", "28", C), ("28%", r"28\%", C), ("28 percent", "28", C),
    (r"45^\circ", "45", C), ("45", r"45^\circ", C), (r"45^{\circ}", r"45°", C),
    (r"45^\circ", r"\frac{\pi}{4}", U), (r"n \text{ odd}", r"n \text{ even}", W),
    (r"3\text{ hours }20\text{ minutes}", "3 hours 20 minutes", C), (r"12\pi\approx 37.7", r"12\pi", C),
    (r"12\pi\approx 37.7", "37.7", W), ("28 pct", r"28\%", C), (r"28\text{ percentage}", r"28\%", C),
]  # fmt: skip

SEVERAL = [
    ("3,2,1", "1,2,3", C), ("1,2", "1,2,3", W), ("1,2,2", "1,2", W), (r"\{1,2,2\}", r"\{2,1\}", C),
    ("1,2", r"\{2,1\}", C), ("1 and 2", "1,2", C), (r"x=1\text{ or }x=2", "1,2", C),
    (r"x = 1 \lor x = 2", "2, 1", C), (r"x\in\{1,2\}", "1,2", C), (r"3\pm\sqrt2", r"3+\sqrt2, 3-\sqrt2", C),
    (r"\pm 3", "3,-3", C), (r"\pm 3", "3", W), ("3", r"\pm 3", W), (r"3 - 2\sqrt{2}", r"3 \pm 2 \sqrt{2}", W),
    ("1,000, 2,000", "1000, 2000", C), ("(1,2)", "(2,1)", W), ("(1,2)", "[1,2]", W),
    (r"\left(\frac12, 3\right)", "(0.5,3)", C), ("(1,2),(3,4)", "(3,4),(1,2)", C),
    ("(1,2),(3,4)", "(1,2),(4,3)", W), ("p=3, q=2", "(p,q)=(3,2)", C), ("p=2, q=3", "(p,q)=(3,2)", W),
    ("x=1,y=2", "x=2,y=1", W), ("(1,2)", "x=1,y=2", C), ("(2,1)", "x=1,y=2", W), (r"\langle 1,2\rangle", "(1,2)", C),
    (r"\emptyset", r"\varnothing", C), (r"\{\}", r"\emptyset", C), ("1,,2", "1,2", W),
    (r"\begin{bmatrix}1&2\\3&4\end{bmatrix}", r"\left(\begin{array}{cc}1&2\\3&4\end{array}\right)", C),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}", W),
    (r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", "-2", C),
    (r"\frac{1}{5}\begin{pmatrix}-17\\6\end{pmatrix}", r"\begin{pmatrix}-17/5\\6/5\end{pmatrix}", C),
    ("(6,3,2)", "(6,3)", W), (r"1, 2, \ldots", r"1, 2, \ldots", C), ("7:32", "7 : 32", C), ("32:7", "7:32", W),
    ("1:00", "12:00", W), ("x=3, y=4", "(3,4)", C), ("y=4, x=3", "(3,4)", W), ("x=1, x=2", "(1,2)", W),
    (r"x = 3 \text{ and } y = 4", "(3,4)", C), ("[1,2]", "x=1,y=2", W), ("x=1,y=2,z=3", "(1,2,3)", C),
    ("(7,2),(5,2)", "p=5,q=2;p=7,q=2", C), ("(5,2),(7,3)", "p=5,q=2;p=7,q=2", W), ("p=5,q=2", "p=5,q=2;p=7,q=2", W),
]  # fmt: skip

RELATIONS = [
    ("1<x", "x>1", C), ("x<1", "x>1", W), (r"x\ge1", "x>1", W), ("2x>2", "x>1", C), ("-x>-1", "x>1", W),
    ("x>1", "y>1", W), ("2>x>1", "1<x<2", C), (r"x\geq 1", r"[1,\infty)", C), ("1<x<2", "(1,2)", C),
    (r"x \in [1,2]", "[1,2]", C), ("x>5", "5", W), (r"x<1\text{ or }x>2", r"(-\infty,1)\cup(2,\infty)", C),
    (r"(3,\infty)\cup(-\infty,2)", r"(-\infty, 2)\cup(3,\infty)", C), (r"[1,2]\cup[2,3]", "[1,3]", C),
    (r"\mathbb{R}\setminus\{0\}", r"(-\infty,0)\cup(0,\infty)", C), (r"\mathbb{R}", r"\mathbb{Z}", W),
    (r"x\neq 0", r"(-\infty,0)\cup(0,\infty)", C), (r"\{x \mid x>0\}", "x>0", C),
    (r"\lambda \geq 1.75", r"[\frac74,+\infty)", C), ("(1,2]", "[1,2)", W), (r"(-\infty,0]", r"(-\infty,0)", W),
    ("[0,100]", "42", W), (r"A\cup B", r"B \cup A", C), ("2x-y+1=0", "y=2x+1", C), ("y=2x+2", "y=2x+1", W),
    ("2x+1", "y=2x+1", C), ("f(x)=2x+1", "2x+1", C), ("x^2=4", "4", W), ("x^2+y^2=4", "x^2+y^2=1", W),
    ("(x-1)^2+(y+2)^2=9", "x^2+y^2-2x+4y-4=0", C), ("0", "2x+4y-3=0", W), ("x=5", "y=5", W), ("3", "n=3k", W),
    ("AB = 4", "4", C), ("4, 5", "AB=4,CD=5", C), (r"\angle A = 30^\circ, \angle B=60^\circ", "30,60", C),
    ("x = 41 = 42", "42", W), (r"\sqrt{16}=4", "4", C), ("42=6*7", "42", C), ("42=43", "42", W),
    ("42=43", "43", W), ("not x = 42", "42", W), ("x \\neq 42", "42", W), ("a=b=5", "5", C),
    (r"\frac{NO}{BO}=\frac{1}{\sqrt6}", r"\frac{1}{\sqrt6}", C),
    (r"f^{-1}(x)=\frac{x-1}{2}", r"\frac{x-1}{2}", C), ("f'(2) = 42", "42", C), (r"42 \sim 43", "42", W),
    ("|x|>1", r"(-\infty,-1)\cup(1,\infty)", C), ("|x|<1", "(-1,1)", C), ("|x|<1", "(-1,1]", W), ("|x|>1", "x>1", W),
    ("-1<x<1", "|x|<1", C), ("0<x<1", "|x|<1", W), (r"[-1.5,-1]\cup[1,1.5]", r"1\leq|z|\leq\frac{3}{2}", C),
]  # fmt: skip

TEXTS = [
    (r"\text{Even}", "even", C), ("Even", "odd", W), ("Yes", r"\text{yes}", C), ("no", "on", W),
    ("(A)", "A", C), ("A)", "A", C), (r"\textbf{(C)}", "C", C), ("B", "A", W), ("A, C", "C, A", C),
    ("AB", "A", W), (r"\text{no solution}", r"\text{No solution.}", C),
    ("It is forty three", "It is forty two", W), ("the answer is 5", "5", C), ("five", "5", W),
    ("the answer is 5", "6", W),
    ("about 42", "42", W), ("not 42", "42", W), ("42 is wrong", "42", W), ("Alice, Bob", "bob and alice", C),
    ("blue", "red", W), (r"\text{DNE}", "DNE", C), ("42 or 43", "43", W), (r"\{41,42,43\}", "42", W),
    (r"42 \vee 43", "42", W), ("40-45", "42", W), (r"42 \pm 1", "42", W), ("__import__('os').getcwd()", "1", W),
    ("inf", "10", W), (r"\frac{}{}", "0", W), (r"\frac{1}{1-1}", "1", W), ("}{", "1", W), ("(C) 10", "C", C),
    (r"\textbf{(C)}~10", "C", C), ("C: 10", "C", C), ("C", r"\textbf{(C)} 10", C), ("(B) 10", "C", W),
    ("(C) 10 or (B) 5", "C", W),
    ("(C) is wrong", "C", W), ("(C)not", "C", W), ("(C) ten", "C", C), ("(A)(B)", "A", W), ("C.5", "C", W),
    (r"3:30 \text{ PM}", "3:30 p.m.", C),
    (r"\text{The answer is }2\pi", r"2\pi", C), (r"The final answer is $\frac{\pi}{2}$.", r"\pi/2", C),
    (r"\text{The answer is 42.}", "42", C), ("0x2A", "0", W), ("₄₂", "42", W), ("~42", "42", W), ("~~42~~", "42", W),
]  # fmt: skip

_42 = [
    "42.", " 42\n", "$42$", r"\(42\)", r"\boxed{42}", r"\text{42}", "**42**", "{{42}}", "42\\\\", r"\;42\,",
    r"\left(42\right)", r"\mathbf{42}", "42 .", r"\displaystyle 42", "42 apples", "\\$42", "x = 42", "42~",
    "４２", "\u200b42", "42\u200b", "\ufeff42",
]  # fmt: skip
DECORATED = [(text, "42", C) for text in _42]

REFUSED = [
    ("9^{9^{9^9}}", "5", U), ("9**9**9", "5", U), ("10^{10^{10}}", "100", U), ("99999999999!", "1", U),
    ("((((9!)!)!)!)!", "1", U), (r"\binom{1000000}{500000}", "5", U), ("x^{x^{x^{x}}}", "1", U),
    ("10^{100000}", "1", U), ("1e999999999", "1", U), ("((2^{1999})^{1999})^{1999}", "1", U),
    (r"\prod_{i=1}^{100000} i", "1", U), (r"\int_0^1 e^{-x^{x^{x}}} dx", "1", U),
    (r"\sqrt{" * 40 + "2" + "}" * 40, "2", U), ("2^{3^{2}}", "512", C), ("e^{x^2}", "e^{x^{2}}", C),
    ("+".join("1" * 600), "600", U),
]  # fmt: skip

GOLDS = [
    ("1", "", G), ("1", " \n", G), ("1", "nan", G), ("1", r"\frac{1}{", G), ("1", "1/0", G),
    ("1", r"\frac{}{}", G), ("1", "1,,2", G), ("1", "(1,2", G), ("1", r"\text{}", G), ("", "1", M),
    (r"\text{}", "1", M), ("", "", G), ("x", "?", G),
]  # fmt: skip

GROUPS = {
    "formulas": FORMULAS, "exact": EXACT, "units": UNITS, "several": SEVERAL, "relations": RELATIONS, "texts": TEXTS,
    "decorated": DECORATED, "refused": REFUSED, "golds": GOLDS,
}  # fmt: skip
