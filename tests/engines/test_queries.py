import pickle

import pytest

from holdfast.engines.queries import name_of, read
from holdfast.ground.errors import EngineFault

TEXT = """
-- shared --
-- Why it is so: 100% of a reason, with a ' in it.
select 'a:b % it''s' as "x:y", 7 % 2 as odd -- :not_a_name
from t
where a = :a and b like :b_2;

-- only (sqlite) --
select json_extract(:x, '$.a')

-- only (postgres) --
select :x -> 'a'
"""


def test_sqlite_keeps_the_text_but_for_comments():
    found = read(TEXT, "sqlite", source="here")

    assert found["shared"] == (
        "select 'a:b % it''s' as \"x:y\", 7 % 2 as odd\nfrom t\nwhere a = :a and b like :b_2"
    )
    assert found["only"] == "select json_extract(:x, '$.a')"


def test_postgres_gets_its_own_placeholders_and_doubled_percent_signs():
    found = read(TEXT, "postgres", source="here")

    assert found["shared"] == (
        "select 'a:b %% it''s' as \"x:y\", 7 %% 2 as odd\n"
        "from t\nwhere a = %(a)s and b like %(b_2)s"
    )
    assert found["only"] == "select %(x)s -> 'a'"


def test_a_statement_knows_its_name_even_after_a_journey():
    statement = read(TEXT, "sqlite", source="here")["shared"]

    assert name_of(statement) == "shared"
    assert name_of(pickle.loads(pickle.dumps(statement))) == "shared"
    assert name_of("select  1") == "select 1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-- a --\nselect :x::text\n", "cast"),
        ("-- a --\nselect 1\n-- a --\nselect 2\n", "twice"),
        ("-- a (postgres) --\nselect 1\n", "no sqlite statement a"),
    ],
)
def test_what_cannot_run_on_both_engines_is_refused_when_read(text: str, said: str):
    with pytest.raises(EngineFault, match=said) as caught:
        read(text, "sqlite", source="here")

    assert caught.value.statement == "a"
