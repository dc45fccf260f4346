/* SPDX-License-Identifier: MIT */
/*
 * A model of what the kernel does for a pager: a page table and a file of pages, as userfaultfd
 * shows them. Page p of the table is page p of the file. Calls that the kernel would refuse, or that
 * would lose bytes, fail the test. In the simulator step() runs other threads: it is called between
 * any two pages of a call, since the kernel does not stop the program meanwhile.
 */
#ifndef GN_TESTS_PAGER_MODEL_H
#define GN_TESTS_PAGER_MODEL_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gannet/exec.h"
#include "pager/core.h"

enum pte {
	PTE_FILE = 1 << 0,    /* the file has the page */
	PTE_PRESENT = 1 << 1, /* the page table has it */
	PTE_WP = 1 << 2,      /* protected; if it is not present: the marker that unmap() left */
	PTE_POISON = 1 << 3,
};

struct pager_model {
	uint64_t pages, local; /* local: pages that the file may have */
	uint8_t *pte, *file;
	uint64_t in_file, in_file_max;
	uint64_t calls[9]; /* of each op, for tests that count */
	void (*step)(struct pager_model *m);
	void (*wake)(struct pager_model *m, uint64_t page, uint64_t n);
	bool (*refuse)(struct pager_model *m); /* whether a call fails; NULL: none does */
	uint64_t refused;
	bool no_remap, no_poison; /* these fail */
	char failure[256];
};

enum pager_model_call {
	MODEL_COPY,
	MODEL_ZERO,
	MODEL_MAP,
	MODEL_UNMAP,
	MODEL_WRITTEN,
	MODEL_LOAD,
	MODEL_PUNCH,
	MODEL_POISON,
	MODEL_WAKE,
};

static inline void model_fail(struct pager_model *m, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static inline void model_fail(struct pager_model *m, const char *fmt, ...)
{
	va_list args;

	if (*m->failure)
		return;
	va_start(args, fmt);
	vsnprintf(m->failure, sizeof(m->failure), fmt, args);
	va_end(args);
}

static inline uint8_t *model_bytes(struct pager_model *m, uint64_t page)
{
	return m->file + page * GN_PAGER_PAGE;
}

/* Before each page of a call, and once at its begin. */
static inline void model_step(struct pager_model *m)
{
	if (m->step)
		m->step(m);
}

static inline bool model_call(struct pager_model *m, enum pager_model_call call, uint64_t page,
			      uint64_t n)
{
	m->calls[call]++;
	model_step(m);
	if (call != MODEL_WAKE && call != MODEL_POISON && m->refuse && m->refuse(m)) {
		m->refused++;
		return false; /* as if a range were wrong */
	}
	if (n && page < m->pages && n <= m->pages - page)
		return true;
	model_fail(m, "call %d of pages %llu to %llu", call, (unsigned long long)page,
		   (unsigned long long)(page + n));
	return false;
}

/* Whether the kernel has no memory for the next page of a call: those before it stay. */
static inline bool model_stops(struct pager_model *m, unsigned i)
{
	model_step(m);
	if (!i || !m->refuse || !m->refuse(m))
		return false;
	m->refused++;
	return true;
}

static inline void model_wake(struct pager_model *m, uint64_t page, uint64_t n)
{
	if (m->wake)
		m->wake(m, page, n);
}

/* Adds a page to the file and the page table. */
static inline void model_fill(struct pager_model *m, uint64_t page, const uint8_t *bytes,
			      bool protect)
{
	if (m->pte[page] & (PTE_FILE | PTE_PRESENT))
		model_fail(m, "a copy onto page %llu, which is there", (unsigned long long)page);
	if (bytes)
		memcpy(model_bytes(m, page), bytes, GN_PAGER_PAGE);
	else
		memset(model_bytes(m, page), 0, GN_PAGER_PAGE);
	m->pte[page] = PTE_FILE | PTE_PRESENT | (protect ? PTE_WP : 0);
	if (++m->in_file > m->local)
		model_fail(m, "%llu pages are resident", (unsigned long long)m->in_file);
	if (m->in_file > m->in_file_max)
		m->in_file_max = m->in_file;
}

static inline int model_copy(void *arg, uint64_t page, unsigned n, const void *bytes, bool protect)
{
	struct pager_model *m = arg;
	unsigned i;

	if (!model_call(m, MODEL_COPY, page, n))
		return -EINVAL;
	for (i = 0; i < n && !model_stops(m, i); i++)
		model_fill(m, page + i, (const uint8_t *)bytes + (size_t)i * GN_PAGER_PAGE,
			   protect);
	model_wake(m, page, i);
	return (int)i;
}

static inline int model_zero(void *arg, uint64_t page, unsigned n)
{
	struct pager_model *m = arg;
	unsigned i;

	if (!model_call(m, MODEL_ZERO, page, n))
		return -EINVAL;
	for (i = 0; i < n && !model_stops(m, i); i++)
		model_fill(m, page + i, NULL, false);
	model_wake(m, page, i);
	return (int)i;
}

static inline int model_map(void *arg, uint64_t page, unsigned n, bool protect)
{
	struct pager_model *m = arg;
	unsigned i;

	if (!model_call(m, MODEL_MAP, page, n))
		return -EINVAL;
	for (i = 0; i < n && !model_stops(m, i); i++) {
		const uint64_t p = page + i;

		if ((m->pte[p] & (PTE_FILE | PTE_PRESENT)) != PTE_FILE)
			model_fail(m, "page %llu is %s", (unsigned long long)p,
				   m->pte[p] & PTE_FILE ? "mapped twice" :
							  "mapped, not in the file");
		m->pte[p] = PTE_FILE | PTE_PRESENT | (protect ? PTE_WP : 0);
	}
	model_wake(m, page, i);
	return (int)i;
}

/* A page that was protected leaves a marker; others leave nothing. */
static inline int model_unmap(void *arg, uint64_t page, unsigned n)
{
	struct pager_model *m = arg;

	if (!model_call(m, MODEL_UNMAP, page, n))
		return -EINVAL;
	for (uint64_t p = page; p < page + n; p++) {
		model_step(m);
		m->pte[p] &= (uint8_t)~PTE_PRESENT;
	}
	return 0;
}

static inline int model_written(void *arg, uint64_t page, unsigned n, uint64_t *bits)
{
	struct pager_model *m = arg;

	if (!model_call(m, MODEL_WRITTEN, page, n) || n > 64)
		return -EINVAL;
	*bits = 0;
	for (unsigned i = 0; i < n; i++) {
		model_step(m);
		*bits |= (uint64_t) !(m->pte[page + i] & PTE_WP) << i;
	}
	return 0;
}

static inline int model_load(void *arg, uint64_t page, unsigned n, void *bytes)
{
	struct pager_model *m = arg;

	if (!model_call(m, MODEL_LOAD, page, n))
		return -EINVAL;
	for (unsigned i = 0; i < n; i++) {
		model_step(m);
		if ((m->pte[page + i] & (PTE_FILE | PTE_PRESENT)) != PTE_FILE)
			model_fail(m, "page %llu is loaded while it is %s",
				   (unsigned long long)(page + i),
				   m->pte[page + i] & PTE_FILE ? "mapped" : "not in the file");
		memcpy((uint8_t *)bytes + (size_t)i * GN_PAGER_PAGE, model_bytes(m, page + i),
		       GN_PAGER_PAGE);
	}
	return 0;
}

/* A page that is punched while it is mapped reads as zeros: the bytes are gone. */
static inline int model_punch(void *arg, uint64_t page, unsigned n)
{
	struct pager_model *m = arg;

	if (!model_call(m, MODEL_PUNCH, page, n))
		return -EINVAL;
	for (uint64_t p = page; p < page + n; p++) {
		model_step(m);
		if (m->pte[p] & PTE_PRESENT)
			model_fail(m, "page %llu is punched while it is mapped",
				   (unsigned long long)p);
		m->in_file -= m->pte[p] & PTE_FILE;
		m->pte[p] &= (uint8_t)~PTE_FILE;
		memset(model_bytes(m, p), 0, GN_PAGER_PAGE);
	}
	return 0;
}

static inline int model_poison(void *arg, uint64_t page)
{
	struct pager_model *m = arg;

	if (!model_call(m, MODEL_POISON, page, 1))
		return -EINVAL;
	if (m->no_poison)
		return -ENOMEM;
	m->pte[page] |= PTE_POISON;
	model_wake(m, page, 1);
	return 0;
}

static inline int model_wake_op(void *arg, uint64_t page, unsigned n)
{
	struct pager_model *m = arg;

	if (!model_call(m, MODEL_WAKE, page, n))
		return -EINVAL;
	model_wake(m, page, n);
	return 0;
}

/* The program may have unmapped the page by itself. */
static inline int model_remap(void *arg, uint64_t page)
{
	struct pager_model *m = arg;

	if (!model_call(m, MODEL_WAKE, page, 1))
		return -EINVAL;
	if (m->no_remap)
		return -ENOMEM;
	if (!(m->pte[page] & PTE_FILE))
		model_fail(m, "page %llu is mapped again, not in the file",
			   (unsigned long long)page);
	if (!(m->pte[page] & PTE_PRESENT))
		m->pte[page] = PTE_FILE | PTE_PRESENT;
	model_wake(m, page, 1);
	return 0;
}

/* MADV_DONTNEED of the program. Poison may go with it. */
static inline void model_forget(struct pager_model *m, uint64_t page)
{
	m->pte[page] &= (uint8_t)~(PTE_PRESENT | PTE_POISON);
}

static const struct pager_ops model_ops = {
	.remap = model_remap,
	.copy = model_copy,
	.zero = model_zero,
	.map = model_map,
	.unmap = model_unmap,
	.written = model_written,
	.load = model_load,
	.punch = model_punch,
	.poison = model_poison,
	.wake = model_wake_op,
};

enum model_touch { TOUCH_DONE, TOUCH_FAULT, TOUCH_SIGBUS };

/* One access of the program. DONE: the bytes of the page may be used until the next step. */
static inline enum model_touch model_touch(struct pager_model *m, uint64_t page, bool write)
{
	uint8_t *pte = &m->pte[page];

	if (*pte & PTE_PRESENT) {
		if (write)
			*pte &= (uint8_t)~PTE_WP;
		return TOUCH_DONE;
	}
	return *pte & PTE_POISON ? TOUCH_SIGBUS : TOUCH_FAULT;
}

/* The memory of the model is the caller's to free, with gn_free(). */
static inline int model_init(struct pager_model *m, uint64_t pages, uint64_t local)
{
	*m = (struct pager_model){.pages = pages, .local = local};
	m->pte = gn_alloc(pages, 0);
	m->file = gn_alloc(pages * GN_PAGER_PAGE, 64);
	return m->pte && m->file ? 0 : -ENOMEM;
}

static inline void model_fini(struct pager_model *m)
{
	gn_free(m->pte);
	gn_free(m->file);
}

#endif
