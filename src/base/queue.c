/* SPDX-License-Identifier: MIT */
/*
 * A bounded queue of pointers with many producers and one consumer. Positions only grow; position p
 * uses cell p % size, whose sequence number shows its state:
 *
 *     seq == p          free: the producer that claims position p may fill it
 *     seq == p + 1      full: the consumer may take position p
 *     seq == p + size   taken, and free for position p + size
 *
 * The consumer sets a flag and sleeps on an eventfd; a push that finds the flag set clears it and
 * writes the eventfd.
 */
#include <errno.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/exec.h"
#include "base/fail.h"

#define CAPACITY_MIN 2u /* with one cell, "full" and "free for the next" would be the same number */
#define CAPACITY_MAX (1u << 24)

struct cell {
	_Atomic uint64_t seq;
	void *item;
};

struct gn_queue {
	/* Written by producers. */
	_Alignas(GN_CACHELINE) _Atomic uint64_t tail;
	/* Written by the consumer. */
	_Alignas(GN_CACHELINE) uint64_t head;
	/* Written at most once per sleep, read by every push. */
	_Alignas(GN_CACHELINE) struct gn_source source;
	atomic_bool sleeping;
	int event_fd; /* -1 until needed; read by the push that cleared sleeping */
	uint32_t mask;
	struct cell *cells;
};

static bool queue_has_item(struct gn_queue *queue)
{
	struct cell *cell = &queue->cells[queue->head & queue->mask];

	/* Pairs with push's store: sees the item. Sequentially consistent for the arm. */
	return atomic_load_explicit(&cell->seq, memory_order_seq_cst) == queue->head + 1;
}

static int queue_create_event_fd(struct gn_queue *queue)
{
	if (queue->event_fd < 0)
		queue->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (queue->event_fd >= 0)
		return 0;
	return gn_fail(-errno, "a queue gets no descriptor to be waited for: %s",
		       gn_strerror(-errno));
}

/* ---- the queue as a wait source; consumer only ---- */

static struct gn_queue *queue_of(struct gn_source *source)
{
	return container_of(source, struct gn_queue, source);
}

static bool queue_source_ready(struct gn_source *source)
{
	return queue_has_item(queue_of(source));
}

static int queue_source_arm(struct gn_source *source)
{
	struct gn_queue *queue = queue_of(source);
	int err = queue_create_event_fd(queue);

	if (err)
		return err;
	/*
	 * Pairs with push: each side stores, then loads what the other stored, sequentially
	 * consistent. So either we see its item, or it sees our flag.
	 */
	atomic_store_explicit(&queue->sleeping, true, memory_order_seq_cst);
	if (queue_has_item(queue)) {
		source->ops->disarm(source);
		return -EAGAIN;
	}
	return queue->event_fd;
}

static void queue_source_disarm(struct gn_source *source)
{
	struct gn_queue *queue = queue_of(source);
	uint64_t count;

	/*
	 * The flag is clear already: a push cleared it and writes the eventfd. If that write comes
	 * after this read, the next sleep ends early, once.
	 */
	atomic_store_explicit(&queue->sleeping, false, memory_order_relaxed);
	if (read(queue->event_fd, &count, sizeof(count)) < 0)
		return; /* not written */
}

static const struct source_ops queue_source_ops = {
	.ready = queue_source_ready,
	.arm = queue_source_arm,
	.disarm = queue_source_disarm,
};

struct gn_source *gn_queue_source(struct gn_queue *queue)
{
	return &queue->source;
}

/* ---- push and pop ---- */

static void queue_wake_consumer(struct gn_queue *queue)
{
	const uint64_t one = 1;

	source_wake(&queue->source);
	/* pairs with queue_source_arm() */
	if (likely(!atomic_load_explicit(&queue->sleeping, memory_order_seq_cst)))
		return;
	/* One producer clears the flag. The acquire pairs with the arm's store: sees event_fd. */
	if (!atomic_exchange_explicit(&queue->sleeping, false, memory_order_acquire))
		return;
	while (write(queue->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

int gn_queue_push(struct gn_queue *queue, void *item)
{
	uint64_t pos = atomic_load_explicit(&queue->tail, memory_order_relaxed);
	struct cell *cell;

	if (!item)
		return gn_fail(-EINVAL, "gn_queue_push(): item is NULL");
	for (;;) {
		int64_t turn;

		cell = &queue->cells[pos & queue->mask];
		/* Pairs with pop's release: the cell's last item has been read. */
		turn = (int64_t)(atomic_load_explicit(&cell->seq, memory_order_acquire) - pos);
		if (turn < 0)
			return gn_fail_text(-EAGAIN, "gn_queue_push(): the queue is full");
		if (turn > 0) /* another producer was faster */
			pos = atomic_load_explicit(&queue->tail, memory_order_relaxed);
		else if (atomic_compare_exchange_weak_explicit(&queue->tail, &pos, pos + 1,
							       memory_order_relaxed,
							       memory_order_relaxed))
			break;
	}
	cell->item = item;
	/*
	 * Publishes the item to queue_has_item(); sequentially consistent before the load of the
	 * flag.
	 */
	atomic_store_explicit(&cell->seq, pos + 1, memory_order_seq_cst);
	queue_wake_consumer(queue);
	return 0;
}

void *gn_queue_pop(struct gn_queue *queue)
{
	struct cell *cell = &queue->cells[queue->head & queue->mask];
	void *item;

	if (!queue_has_item(queue)) {
		gn_charge(GN_WORK_SCAN, 1);
		return NULL;
	}
	item = cell->item;
	/* Pairs with push's acquire: the cell is free after its item was read. */
	atomic_store_explicit(&cell->seq, queue->head + queue->mask + 1, memory_order_release);
	queue->head++;
	return item;
}

/* ---- creation ---- */

int gn_queue_create(uint32_t capacity, struct gn_queue **out)
{
	struct gn_queue *queue;
	uint32_t size = CAPACITY_MIN;
	int err = -ENOMEM;

	if (capacity == 0 || capacity > CAPACITY_MAX)
		return gn_fail(-EINVAL, "gn_queue_create(): capacity is 0, or more than 2^24");
	while (size < capacity)
		size *= 2;
	queue = gn_alloc(sizeof(*queue), _Alignof(struct gn_queue));
	if (!queue)
		return -ENOMEM;
	queue->cells = gn_alloc(size * sizeof(struct cell), GN_CACHELINE);
	if (!queue->cells)
		goto free_queue;
	queue->mask = size - 1;
	for (uint32_t i = 0; i < size; i++)
		atomic_init(&queue->cells[i].seq, i);
	source_init(&queue->source, &queue_source_ops);
	queue->event_fd = -1;
	/* Created now, because a failure at the first sleep could not be reported. */
	if (exec_current() == &exec_real) {
		err = queue_create_event_fd(queue);
		if (err)
			goto free_cells;
	}
	*out = queue;
	return 0;

free_cells:
	gn_free(queue->cells);
free_queue:
	gn_free(queue);
	return err;
}

void gn_queue_destroy(struct gn_queue *queue)
{
	if (!queue)
		return;
	source_fini(&queue->source);
	if (queue->event_fd >= 0)
		close(queue->event_fd);
	gn_free(queue->cells);
	gn_free(queue);
}
