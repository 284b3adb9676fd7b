"""Streams of random numbers by one seed: a draw takes `default_rng([seed, STREAM, …])`, apart from those of other ends.

The number of a stream is never changed, or the same seed would give other bytes. Where two ends
have one number, they never meet in one computation, or what they draw is of another kind.
"""

WINDOW = 1  # a negative among a query's candidates; the query's row stands before it
RECORDS = 1  # records that are scored, of all
CONTROL = 2  # random negatives of the records that are scored
RESAMPLED = 3  # records of a replicate
RANDOM = 2  # documents of the random source that a decision compares with
MEASURED = 9  # queries, documents and blocks of the decision
RESEMBLING = 5  # trees that tell labelled pairs; the half of the records follows
TIMED = 3  # texts by which a plan measures how long embedding takes
COMPLETED = 5  # documents that make a trial's corpus full
JUDGED = 11  # queries of a split of which some are measured
PLANTED = 29  # positives that are held out and mined like any document
# domain, difficulty and length of what a language model writes; the query's row stands before it
WRITTEN = 31
