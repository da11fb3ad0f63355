"""Names of functions stay correct when shortened."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsmlab.profile.model import Frame
from tsmlab.profile.names import shortened
from tsmlab.profile.symbols import Symbols, demangle
from tsmlab.profile.text import fitted


@pytest.mark.parametrize(
    ("linkage", "whole", "bare"),
    [
        ("_ZNK5StorecvSsEv", "Store::operator std::string() const", "Store::operator std::string"),
        ("_ZN1AixEm", "A::operator[](unsigned long)", "A::operator[]"),
        ("_Z1fIiEDaT_", "auto f<int>(int)", "f<int>"),
        (
            "_ZN5Store3putIiEERKSt6vectorIT_SaIS2_EES2_",
            "std::vector<int, std::allocator<int> > const& Store::put<int>(int)",
            "Store::put<int>",
        ),
        ("_ZZ1fiENKUliE_clEi", "f(int)::{lambda(int)#1}::operator()(int) const", None),
        ("_ZN1XC2Ev.isra.0", "X::X() [clone .isra.0]", "X::X"),
        ("_ZN4shop4ring17h0a1b2c3d4e5f6789E", "shop::ring", "shop::ring"),
        ("_RNvNtCs1234_4shop4till4ring", "shop::till::ring", "shop::till::ring"),
        ("main", "main", ""),
    ],
)
def test_demangled(linkage, whole, bare):
    symbols = Symbols({1: (Frame(linkage),)})
    demangle(symbols)
    (frame,) = symbols.frames[1]
    assert frame.function == whole
    assert bare is None or frame.bare == bare


@pytest.mark.parametrize(
    ("name", "width", "expected"),
    [
        ("std::vector<Item, std::allocator<Item> >::reserve", 24, "std::vector<…>::reserve"),
        ("call<std::function<int (char)->int> >", 10, "call<…>"),
        ("decltype_of<int, (decltype(a->b))1>", 20, "decltype_of<…>"),
        ("operator< <std::less<int> >", 20, "operator< <…>"),
        ("Ptr<std::vector<int> >::operator->", 24, "Ptr<…>::operator->"),
        (
            "<alloc::vec::Vec<u8> as core::clone::Clone>::clone",
            49,
            "<alloc::vec::Vec<…> as core::clone::Clone>::clone",
        ),
        ("foo::bar::<alloc::string::String>", 14, "foo::bar::<…>"),
        ("alloc::slice::<impl [T]>::to_vec", 24, "alloc::slice::<…::to_vec"),
        ("alpha::beta::gamma::{{closure}}", 24, "alpha::bet…::{{closure}}"),
        ("A<(4>3), std::less<int> >::f", 20, "A<(4>3), std::le…::f"),
        ("a" * 30 + "b" * 30, 31, "a" * 10 + "…" + "b" * 20),
        ("broken<name(" + "x" * 30, 16, "broke…" + "x" * 10),
    ],
)
def test_shortened(name, width, expected):
    assert shortened(Frame(name), width) == expected


PARTS = (
    "f|ns::|<int>|<|>|(|)|(int)|()| |::|operator|->|auto |]|operator()| as |[abi]|{lambda()#1}|"
    " const|decltype(a->b) |(anonymous namespace)"
)
WORDS = st.sampled_from(PARTS.split("|"))


@settings(deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=12).map("".join), st.integers(8, 60))
def test_what_is_kept_stands_in_the_name_in_this_order(name, width):
    short = shortened(Frame(name), width)
    assert 0 < len(short) <= max(width, 1)
    letters = iter(name)
    assert all(letter in letters for letter in short.replace("…", ""))


@settings(deadline=None)
@given(st.text(min_size=1, max_size=80), st.integers(8, 60))
def test_any_text_fits(name, width):
    assert 0 < len(shortened(Frame(name), width)) <= width


def test_a_place_stays_beside_a_long_name():
    name = "Store::put<std::vector<Item, std::allocator<Item> > >"
    frame = Frame(f"void {name}(Item const&)", "/srv/shop/src/store.cpp", 21, bare=name)
    assert fitted(frame, 36) == "Store::put<…> src/store.cpp:21"
    assert re.fullmatch(r"Store::…t<…> src/store\.cpp:21|\S{8,} \S*cpp:21", fitted(frame, 24))
