"""The decisions of `croupier cron`. Pure: no clock, no files, no network."""
