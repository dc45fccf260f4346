/* SPDX-License-Identifier: MIT */
/*
 * The heap of a simulated process: the C library's, with all allocations linked to the process.
 * They are freed when the process ends, and leaks are counted.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/list.h"
#include "sim/nodes.h"

#define BLOCK_LIVE 0x67636c6976650001u
#define BLOCK_FREE 0x6763667265650002u

/* Precedes the memory it describes. */
struct sim_block {
	uint64_t magic;
	struct sim_block *next, **prev;
	struct sim_proc *proc;
	void *raw; /* pointer for free() */
	size_t size;
};

static_assert(sizeof(struct sim_block) % _Alignof(max_align_t) == 0, "what follows is aligned");

void *sim_heap_alloc(size_t size, size_t align)
{
	struct gn_sim *sim = sim_current();
	struct sim_proc *proc = sim->proc;
	struct sim_block *block;
	uintptr_t at;
	char *raw;

	assert(proc);
	if (align < _Alignof(max_align_t))
		align = _Alignof(max_align_t);
	if (size > SIZE_MAX / 2 - sizeof(*block) - align)
		return NULL;
	/* Faults hit only the program's allocations, not the engine's. */
	if (sim->thread && sim_fault(sim, SIM_ALLOC, proc->node->index))
		return NULL;
	/* Large memory comes zeroed from the kernel, and costs nothing until used. */
	raw = calloc(1, sizeof(*block) + align - 1 + size);
	if (!raw)
		return NULL;
	at = ((uintptr_t)raw + sizeof(*block) + align - 1) & ~(uintptr_t)(align - 1);
	block = (struct sim_block *)(void *)(raw + (at - (uintptr_t)raw)) - 1;
	*block = (struct sim_block){.magic = BLOCK_LIVE, .proc = proc, .raw = raw, .size = size};
	list_push(&proc->blocks, block);
	proc->n_blocks++;
	proc->block_bytes += size;
	return block + 1;
}

void sim_heap_free(void *ptr)
{
	struct sim_block *block = (struct sim_block *)ptr - 1;

	assert(block->magic == BLOCK_LIVE);
	block->magic = BLOCK_FREE;
	list_remove(block);
	block->proc->n_blocks--;
	block->proc->block_bytes -= block->size;
	free(block->raw);
}

uint64_t sim_heap_release(struct sim_proc *proc)
{
	const uint64_t n = proc->n_blocks;

	while (proc->blocks)
		sim_heap_free(proc->blocks + 1);
	assert(proc->n_blocks == 0);
	return n;
}
