"""The audit suite: the real learner on nasty neighbours, and the epsilon that an attacker can prove it costs.

`neighbours` are pairs of made-up tables, `evidence` is what an attacker makes of an answer, `mechanisms` are what is
attacked, `suite` is all of it with its report. Nothing here is a copy of what it audits: selections, counts and whole
fits run the code that users run, the noise that protects people included. The command line imports this package;
nothing else does.
"""
