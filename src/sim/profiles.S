/* SPDX-License-Identifier: MIT */
/* The built-in profiles: the bytes of data/nics, each with a zero behind it. */
	.section .rodata
.macro nic symbol, file
	.globl	\symbol
	.hidden	\symbol
	.type	\symbol, %object
\symbol:
	.incbin	"\file"
	.byte	0
	.size	\symbol, . - \symbol
.endm

	nic	sim_nic_ideal, "ideal.nic"
	nic	sim_nic_cx3, "cx3.nic"
	nic	sim_nic_cx3_fdr, "cx3-fdr.nic"
	nic	sim_nic_cx3_roce, "cx3-roce.nic"
	nic	sim_nic_cx4, "cx4.nic"
	nic	sim_nic_connect_ib, "connect-ib.nic"

	.section .note.GNU-stack, "", %progbits
