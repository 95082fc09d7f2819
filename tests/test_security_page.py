from tests.adversary.attacks import PAGE, ROOT, list_attacks


def test_every_attack_on_the_page_names_the_tests_that_try_it() -> None:
    attacks = list_attacks(PAGE.read_text())
    assert len(attacks) >= 33
    for attack, files in attacks.items():
        assert files, attack
        for file in files:
            assert "def test_" in (ROOT / file).read_text(), (attack, file)
