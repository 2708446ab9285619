"""Train one profile with several parameter values, on several machines at a time"""
