"""The values that every part of Croupier speaks in: pure, exact; standard library and RE2 only."""
