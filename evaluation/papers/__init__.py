# SPDX-License-Identifier: MIT
"""The papers' evaluation: their figures, simulated with Gannet, beside what they printed."""
