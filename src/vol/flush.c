/* SPDX-License-Identifier: MIT */
/*
 * FLUSH: WRITEs that have ended become visible to other connections when a READ on the same channel
 * has ended. One READ for each channel of each donor that was written since the last FLUSH.
 */
#include "vol/vol.h"

/* A range of the donor on this channel that is a copy. */
static bool flush_find(const struct vol_donor *donor, unsigned channel, struct vol_copy **copy,
		       uint64_t *offset)
{
	for (*copy = donor->copies; *copy; *copy = (*copy)->next) {
		if ((*copy)->state != VOL_LIVE && (*copy)->state != VOL_FILLING)
			continue;
		for (*offset = 0; *offset < donor->vol->extent_bytes; *offset += VOL_STRIPE)
			if (gn_io_region_channel((*copy)->region, *offset) == channel)
				return true;
	}
	return false;
}

/* The READs of the next donor's channels. */
enum vol_next vol_flush_prepare(struct vol_op *op)
{
	struct gn_vol *vol = op->queue->vol;
	const unsigned n = vol->opts.n_donors - mutant("vol-flush-early", MUTANT_ALWAYS);

	for (; op->donor < n && !op->n_copies; op->donor++, op->channel = 0) {
		struct vol_donor *donor = &vol->donors[op->donor];

		if (!op->channel) {
			if (!__atomic_load_n(&donor->written, __ATOMIC_SEQ_CST) &&
			    !__atomic_load_n(&donor->flushing, __ATOMIC_SEQ_CST))
				continue;
			/* Before the flag: a FLUSH that finds it cleared finds this one. */
			__atomic_fetch_add(&donor->flushing, 1, __ATOMIC_SEQ_CST);
			__atomic_store_n(&donor->written, 0, __ATOMIC_SEQ_CST);
		}
		for (; op->channel < vol->io_opts.channels && op->n_copies < VOL_COPIES;
		     op->channel++) {
			struct vol_copy *copy;
			uint64_t offset;

			if (!flush_find(donor, op->channel, &copy, &offset))
				continue;
			vol_op_use(op, copy);
			op->sge[op->n_copies] = (struct gn_io_sge){
				.addr = op->edge + 64ul * op->n_copies, .len_bytes = 8};
			vol_op_io(op, op->n_copies - 1, GN_IO_READ, offset, &op->sge[op->n_copies],
				  1);
		}
		if (op->channel < vol->io_opts.channels || op->n_copies)
			return VOL_OP_ISSUE;
		__atomic_fetch_sub(&donor->flushing, 1, __ATOMIC_SEQ_CST);
	}
	return VOL_OP_FINISH;
}

/* The READs of some channels have ended. */
void vol_flush_step_ended(struct vol_op *op)
{
	struct gn_vol *vol = op->queue->vol;

	if (op->failed) { /* all of this donor again */
		__atomic_store_n(&vol->donors[op->donor].written, 1, __ATOMIC_SEQ_CST);
		op->channel = vol->io_opts.channels;
	}
	if (op->channel < vol->io_opts.channels)
		return;
	__atomic_fetch_sub(&vol->donors[op->donor].flushing, 1, __ATOMIC_SEQ_CST);
	op->channel = 0;
	if (!op->failed)
		op->donor++;
}
