"""Tasks, docs and gates as pytest items. All modules that import pytest are here, except `plugin` and `hookspecs`.

startup, options, checks    the options of a run and the seed of early stopping; usage errors (exit code 4)
option_values               the types of the values of options
session, selection, rules   what was collected and selected, and the gates that the configuration adds
models, baseline, journal   the models and the baseline that options name; docs beside those of the baseline
collect, items              a task file as a module of doc and gate items; file_patterns: which files are task files
hooks, signals              the hooks of a run: item outcomes and their letters, exit status; its end by a signal
item_runs                   a doc item with its numbers for JUnit, a gate item, the score item of a group
judge, early_stop           the way of a gate to its verdict, over all docs or in random order until it is proven
xdist, shards, bisect       the same over several workers, over several jobs, and over saved checkpoints
scheduling                  the blocks of docs that workers get, and what becomes of those of a worker that died
listing, progress           --llmeval-list and --llmeval-show; the text beside pytest's progress row
report_data, summary        the end of a session: the report, the lines of a baseline that is written, the files
"""
