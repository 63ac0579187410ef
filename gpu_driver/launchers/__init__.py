# SPDX-License-Identifier: Apache-2.0
"""What several launchers share: splits of work, strided copies, broadcasting, products of recurrent cells."""
