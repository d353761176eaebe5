"""What is known of each data set of reasoning-gym 0.1.25: how its answers are judged, how its items are drawn.

    judged_by("gcd")            # Judge.NUMBER
    sorted(DATA_SETS)           # 105 names

A data set that is not in the table (a newer version, or one of your own that was registered there) is drawn afresh for
each item and judged by its own scorer, or by its text where it has none.
"""

from __future__ import annotations

from enum import Enum


class Judge(Enum):
    """NUMBER: by value, as MathVerifier does without the host. TEXT: by the gold's text; ANY_CASE: in capitals or not.
    Both take a line break for a blank. OWN: by the data set's own scorer, on the host, unless it is the gold's text.

    The first three are tensor programs alone. They stand for scorers that give full marks to that and nothing else, or
    that should: see FLAWS.
    """

    NUMBER = "number"
    TEXT = "text"
    ANY_CASE = "any case"
    OWN = "own"


_JUDGED = {
    Judge.NUMBER: """
        aiw basic_arithmetic binary_alternation chain_sum count_bits count_primes decimal_arithmetic decimal_chain_sum
        gcd gsm_symbolic largest_island lcm leg_counting letter_counting maze number_format number_sequence products
        rectangle_count rotten_oranges self_reference simple_equations simple_geometry
    """,
    Judge.TEXT: """
        ab acre arc_1d base_conversion bf binary_matrix caesar_cipher circuit_logic course_schedule dice emoji_mystery
        futoshiki isomorphic_strings list_functions mahjong_puzzle mini_sudoku modulo_grid number_filtering path_star
        ransom_note rotate_matrix spiral_matrix string_insertion string_manipulation string_splitting string_synthesis
        sudoku syllogism word_sequence_reversal
    """,
    Judge.ANY_CASE: """
        calendar_arithmetic color_cube_rotation family_relationships figlet_font game_of_life_halting letter_jumble
        needle_haystack sentence_reordering spell_backward tsumego zebra_puzzles
    """,
    Judge.OWN: """
        advanced_geometry arc_agi bitwise_arithmetic boxnet codeio coin_flip complex_arithmetic countdown cryptarithm
        fraction_simplification game_of_life graph_color group_anagrams intermediate_integration jugs kakurasu
        knight_swap knights_knaves manipulate_matrix n_queens number_sorting palindrome_generation
        palindrome_partitioning polynomial_equations polynomial_multiplication pool_matrix power_function
        prime_factorization propositional_logic puzzle24 quantum_lock rearc rubiks_cube rush_hour shortest_path
        simple_integration sokoban survo time_intervals tower_of_hanoi word_ladder word_sorting
    """,
}
DATA_SETS = {name: judge for judge, names in _JUDGED.items() for name in names.split()}

# To what a data set's own scorer gives full marks too, and what is done about it here (see reasoning_gym_strict).
FLAWS = {
    "advanced_geometry": "what goes on behind a point: nothing may",
    "calendar_arithmetic": "any number where the gold is -1: judged by text",
    "coin_flip": "its first digit, and everything within 1e-4: the value must be exact",
    "complex_arithmetic": "nan: refused",
    "countdown": "anything within 1e-5 of the target: the value must be exact",
    "decimal_arithmetic": "anything within 0.001 of twelve figures: judged by value",
    "figlet_font": "any ten letters in their places: judged by text",
    "fraction_simplification": "what goes on behind the fraction: nothing may",
    "game_of_life": "rows and cells beyond the board: it must be the same",
    "game_of_life_halting": "any answer at all: judged by text",
    "gsm_symbolic": "the first number in the answer, without its sign: judged by value",
    "intermediate_integration": "one formula or another, and the integral itself: it must be one formula without that",
    "kakurasu": "a grid among other marks: there may be none",
    "knights_knaves": "any words that name nobody: there may be none",
    "letter_jumble": "words behind the last one: judged by text",
    "number_sorting": "numbers within 1 of the right ones: they must be the same",
    "polynomial_equations": "parts that are no numbers, and any where there is no solution: the numbers must be these",
    "polynomial_multiplication": "one polynomial or another: it must be one",
    "pool_matrix": "numbers within a hundredth of the right ones: they must be these, rounded to two places at most",
    "propositional_logic": "what is no formula behind one: nothing may be",
    "puzzle24": "any four small numbers that make 24, rounded down: the given ones must, exactly",
    "quantum_lock": "buttons hidden in words: there may be none",
    "rubiks_cube": "marks that are no moves: there may be none",
    "simple_integration": "one formula or another: it must be one",
    "sokoban": "letters that are no moves: there may be none",
    "survo": "a grid among words: there may be none",
    "time_intervals": "what goes on behind a number of days: nothing may",
    "tower_of_hanoi": "moves among words: there may be none",
    "word_sorting": "words behind the last one: there may be none",
}

# Data sets that need something from their user, or cannot keep some promise of an environment.
LIMITS = {
    "composite": "a mixture of others: not listed; make it with datasets=[reasoning_gym.composite.DatasetSpec(...)]",
    "boxnet": "no gold answer, only a scorer: nothing to warm-start on, and `check` finds no gold that pays",
    "rush_hour": "no gold answer, only a scorer: nothing to warm-start on, and `check` finds no gold that pays",
}

# Some prompts or answers hold characters beyond ASCII: they need a `vocab` that knows these, as tokenizers of language
# models do; `Vocab.characters` does not.
BEYOND_ASCII = frozenset(
    """
    acre advanced_geometry caesar_cipher circuit_logic codeio complex_arithmetic emoji_mystery figlet_font futoshiki
    gsm_symbolic intermediate_integration knight_swap letter_counting letter_jumble modulo_grid needle_haystack
    prime_factorization propositional_logic quantum_lock rectangle_count sentence_reordering simple_geometry
    simple_integration word_sequence_reversal word_sorting
    """.split()
)

# Milliseconds for an item of data sets that are too slow for the 10,000 problems of a default bank: pass bank_size=.
SLOW = {
    "futoshiki": 160,
    "intermediate_integration": 70,
    "knight_swap": 310,
    "puzzle24": 130,
    "quantum_lock": 100,
    "sokoban": 90,
    "zebra_puzzles": 120,
}

# Making the data set takes a millisecond or more (it reads a file of words, or worse) and draws nothing at random: one
# is made, and takes the seed of each item.
RESEEDED = frozenset(
    """
    arc_agi caesar_cipher codeio emoji_mystery figlet_font group_anagrams letter_counting letter_jumble n_queens
    rush_hour sentence_reordering spell_backward word_ladder word_sequence_reversal word_sorting
    """.split()
)

# Items depend on the order of a set of strings, which differs between processes: they are drawn in one whose order is
# fixed.
HASHED = frozenset("isomorphic_strings knight_swap polynomial_multiplication ransom_note word_ladder".split())


def judged_by(name: str, has_scorer: bool) -> Judge:
    """How a data set is judged; has_scorer: whether its class brings a scorer of its own."""
    return DATA_SETS.get(name, Judge.OWN if has_scorer else Judge.TEXT)
