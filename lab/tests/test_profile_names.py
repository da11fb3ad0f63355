"""Names of functions stay true when they are shortened."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsmlab.profile.model import Frame
from tsmlab.profile.names import bare, shortened
from tsmlab.profile.text import fitted

LAMBDA = "{lambda(int)#2}"
ALIASES = "std::vector<Item, std::allocator<Item> >"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # C++: operators
        ("std::hash<Item>::operator()(Item const&) const", "std::hash<Item>::operator()"),
        ("operator()", "operator()"),
        (f"f(int)::{LAMBDA}::operator()(int) const", f"f::{LAMBDA}::operator()"),
        ("Ptr<int>::operator->() const", "Ptr<int>::operator->"),
        ("Ptr<int>::operator->*(int)", "Ptr<int>::operator->*"),
        ("bool operator< <int>(A<int> const&, A<int> const&)", "operator< <int>"),
        ("std::ostream& operator<< <char>(std::ostream&, char)", "operator<< <char>"),
        ("auto operator<=><int>(A const&, B)", "operator<=><int>"),
        ("A::operator[](unsigned long)", "A::operator[]"),
        ("Store::operator std::string()", "Store::operator std::string"),
        (f"A::operator {ALIASES}() const", f"A::operator {ALIASES}"),
        ("operator new[](unsigned long)", "operator new[]"),
        ('operator"" _kg(unsigned long long)', 'operator"" _kg'),
        # C++: types that are returned
        ("auto f<int>(int)", "f<int>"),
        ("decltype(auto) ns::g<int>()", "ns::g<int>"),
        ("decltype (fp.x->y) g<int, (decltype(a->b))1>(int)", "g<int, (decltype(a->b))1>"),
        ("std::enable_if<(sizeof(int)>4), void>::type h<int>(int)", "h<int>"),
        (f"{ALIASES} const& Store::put<std::less<int> >(Item)", "Store::put<std::less<int> >"),
        ("(anonymous namespace)::Item& (anonymous namespace)::f()", "(anonymous namespace)::f"),
        ("void (*f<int>(int))(char)", "void (*f<int>(int))(char)"),  # it returns a function
        # C++: arrows in template arguments
        (
            "void call<std::function<int (char)->int> >(int)",
            "call<std::function<int (char)->int> >",
        ),
        ("F<auto (int) -> int>::operator()(int) const", "F<auto (int) -> int>::operator()"),
        # C++: others
        ("f[abi:cxx11](int) [clone .isra.0]", "f[abi:cxx11]"),
        ("X::f(void (*)(int), int (&) [3]) const &", "X::f"),
        ("void f<int>(int) requires C<int>", "f<int>"),
        ("non-virtual thunk to ns::A::f(int)", "non-virtual thunk to ns::A::f"),
        ("fill(int)::<lambda()>", "fill(int)::<lambda()>"),
        # Rust, Go, C
        ("<A as T>::m", "<A as T>::m"),
        (
            "<fn(u8) -> u8 as FnOnce<(u8,)>>::call_once",
            "<fn(u8) -> u8 as FnOnce<(u8,)>>::call_once",
        ),
        ("alloc::slice::<impl [T]>::to_vec", "alloc::slice::<impl [T]>::to_vec"),
        ("store::put::{{closure}}", "store::put::{{closure}}"),
        ("net/http.(*conn).serve", "net/http.(*conn).serve"),
        ("main", "main"),
        ("broken<name(", "broken<name("),
    ],
)
def test_without_returned_types_and_parameters(name: str, expected: str) -> None:
    assert bare(name)[0] == expected


@pytest.mark.parametrize(
    ("name", "has_some"),
    [("f()", True), ("fill(int)::<lambda()>", True), ("broken<name(", True)]
    + [(name, False) for name in ("f", "operator()", "(anonymous namespace)::f", "main.(*T).m")],
)
def test_whether_a_name_has_parameters(name: str, has_some: bool) -> None:
    assert bare(name)[1] is has_some


@pytest.mark.parametrize(
    ("name", "width", "expected"),
    [
        ("f(int)", 6, "f(int)"),
        ("f(int, int)", 6, "f"),
        ("std::vector<Item, std::allocator<Item> >::reserve(int)", 24, "std::vector<…>::reserve"),
        ("void call<std::function<int (char)->int> >(int)", 10, "call<…>"),
        ("bool operator< <int>(A<int> const&)", 14, "operator< <…>"),
        ("<alloc::vec::Vec<u8> as core::clone::Clone>::clone", 60, None),
        (
            "<alloc::vec::Vec<u8> as core::clone::Clone>::clone",
            49,
            "<alloc::vec::Vec<…> as core::clone::Clone>::clone",
        ),
        ("<alloc::vec::Vec<u8> as core::clone::Clone>::clone", 26, "<Vec<…> as Clone>::clone"),
        ("<hashbrown::raw::RawTable<T>>::reserve", 24, "<RawTable<T>>::reserve"),
        ("core::ptr::drop_in_place<alloc::vec::Vec<u8>>", 28, "core::ptr::drop_in_place<…>"),
        ("foo::bar::<alloc::string::String>", 14, "foo::bar::<…>"),
        ("alloc::slice::<impl [T]>::to_vec", 24, "alloc::slice::<…::to_vec"),
        ("alpha::beta::gamma::{{closure}}", 24, "alpha::bet…::{{closure}}"),
        ("non-virtual thunk to ns::A::f(int)", 20, "non-virtual thun…::f"),
        ("a" * 30 + "b" * 30, 31, "a" * 10 + "…" + "b" * 20),
        ("broken<name(" + "x" * 30, 16, "broke…" + "x" * 10),
    ],
)
def test_shortened(name: str, width: int, expected: str | None) -> None:
    assert shortened(name, width) == (expected or name)


PARTS = (
    "f|ns::|<int>|<|>|(|)|(int)|()| |::|operator|->|auto |]|operator()| as |[abi]|{lambda()#1}|"
    " const|decltype(a->b) |(anonymous namespace)"
)
WORDS = st.sampled_from(PARTS.split("|"))


@given(st.lists(WORDS, min_size=1, max_size=12).map("".join), st.integers(8, 60))
def test_what_is_kept_stands_in_the_name_in_this_order(name: str, width: int) -> None:
    short = shortened(name, width)
    assert short
    assert len(short) <= max(width, 1)
    letters = iter(name)
    assert all(letter in letters for letter in short.replace("…", ""))


@given(st.text(min_size=1, max_size=80), st.integers(8, 60))
def test_any_text_fits(name: str, width: int) -> None:
    assert 0 < len(shortened(name, width)) <= width


def test_a_place_stays_beside_a_long_name() -> None:
    frame = Frame(f"void Store::put<{ALIASES}>(Item const&)", "/srv/shop/src/store.cpp", 21)
    assert fitted(frame, 36) == "Store::put<…> src/store.cpp:21"
    assert re.fullmatch(r"Store::…t<…> src/store\.cpp:21|\S{8,} \S*cpp:21", fitted(frame, 24))
