"""Checks of targets before they are deployed: ``bridge doctor``.

A rule is one function of a `bridge.doctor.subject.Subject`. `bridge.doctor.rules` lists and applies the rules;
`bridge.doctor.reports` and `bridge.doctor.sarif` write the findings.
"""
