/* SPDX-License-Identifier: MIT */
/* The lists of figures, charts and fits, byte for byte, as read-only data of the command. */
	.section .rodata, "a"
	.global lab_paper_data, lab_paper_data_end, lab_fit_data, lab_fit_data_end
	.global lab_figures_data, lab_figures_data_end
	.balign 16
lab_paper_data:
	.incbin LAB_PAPER_TSV
lab_paper_data_end:
	.byte 0
	.balign 16
lab_fit_data:
	.incbin LAB_FIT_TSV
lab_fit_data_end:
	.byte 0
	.balign 16
lab_figures_data:
	.incbin LAB_FIGURES_TSV
lab_figures_data_end:
	.byte 0
	.section .note.GNU-stack, "", %progbits
