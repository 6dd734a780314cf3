"""What `croupier cron` decides. Pure: no clock, no files, no network."""
