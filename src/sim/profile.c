/* SPDX-License-Identifier: MIT */
/*
 * Parses profiles. Decimal values become integers without floating point, so they mean the same on
 * every machine.
 */
#include "sim/profile.h"
#include "base/fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gannet/sim.h"

#define FILE_MAX      (64u * 1024u)
#define LIKE_MAX      4u     /* depth of "like" references */
#define MAX_MSG_LEAST 65536u /* every provider supports this message size */

/* ---- the built-in ones (profiles.S) ---- */

extern const char sim_nic_ideal[], sim_nic_cx3[], sim_nic_cx3_fdr[], sim_nic_cx3_roce[],
	sim_nic_cx4[], sim_nic_connect_ib[];

static const struct {
	const char *name, *text;
} builtin[] = {
	{"ideal", sim_nic_ideal},	{"cx3", sim_nic_cx3}, {"cx3-fdr", sim_nic_cx3_fdr},
	{"cx3-roce", sim_nic_cx3_roce}, {"cx4", sim_nic_cx4}, {"connect-ib", sim_nic_connect_ib},
};

#define BUILTIN (sizeof(builtin) / sizeof(builtin[0]))

const char *gn_sim_profile_name(unsigned i)
{
	return i < BUILTIN ? builtin[i].name : NULL;
}

const char *gn_sim_profile_text(const char *name)
{
	for (unsigned i = 0; name && i < BUILTIN; i++)
		if (!strcmp(name, builtin[i].name))
			return builtin[i].text;
	return NULL;
}

/* ---- fields ---- */

enum unit { NS, COUNT, GBPS, GBYTES, PERCENT };

#define AT(member) offsetof(struct sim_profile, member)

static const struct field {
	const char *name;
	enum unit unit;
	size_t at;
	uint64_t max; /* in the field's unit */
} fields[] = {
	{"jitter_pct", PERCENT, AT(jitter_ppm), 90},
	{"cores", COUNT, AT(cores), 4096},
	{"work_ns", NS, AT(work_ps[GN_WORK_NS]), 1000},
	{"copy_gbytes", GBYTES, AT(work_ps[GN_WORK_COPY]), 1000},
	{"checksum_gbytes", GBYTES, AT(work_ps[GN_WORK_CHECKSUM]), 1000},
	{"scan_ns", NS, AT(work_ps[GN_WORK_SCAN]), 1000000},
	{"found_ns", NS, AT(work_ps[GN_WORK_FOUND]), 1000000},
	{"look_ns", NS, AT(look_ps), 1000000},
	{"yield_ns", NS, AT(yield_ps), 1000000},
	{"post_ns", NS, AT(post_ps), 1000000},
	{"doorbell_ns", NS, AT(doorbell_ps), 1000000},
	{"inline_line_ns", NS, AT(inline_line_ps), 1000000},
	{"recv_ns", NS, AT(recv_ps), 1000000},
	{"poll_ns", NS, AT(poll_ps), 1000000},
	{"near_requests", COUNT, AT(near_requests), 1u << 24},
	{"post_far_ns", NS, AT(post_far_ps), 1000000},
	{"mutex_handover_ns", NS, AT(mutex_handover_ps), 1000000},
	{"mutex_waiter_ns", NS, AT(mutex_waiter_ps), 1000000},
	{"hold_ns", NS, AT(hold_ps), 1000000},
	{"hold_handover_ns", NS, AT(hold_handover_ps), 1000000},
	{"hold_waiter_ns", NS, AT(hold_waiter_ps), 1000000},
	{"post_paths", COUNT, AT(post_paths), 64},
	{"mmio_ns", NS, AT(mmio_ps), 1000000},
	{"doorbell_gap_ns", NS, AT(doorbell_gap_ps), 1000000},
	{"blueflame_gap_ns", NS, AT(blueflame_gap_ps), 1000000},
	{"dma_read_ns", NS, AT(dma_read_ps), 1000000},
	{"pcie_gbps", GBPS, AT(pcie), 100000},
	{"tx_request_ns", NS, AT(tx_request_ps), 1000000},
	{"tx_response_ns", NS, AT(tx_response_ps), 1000000},
	{"tx_ack_ns", NS, AT(tx_ack_ps), 1000000},
	{"tx_datagram_ns", NS, AT(tx_datagram_ps), 1000000},
	{"rx_request_ns", NS, AT(rx_request_ps), 1000000},
	{"rx_response_ns", NS, AT(rx_response_ps), 1000000},
	{"rx_ack_ns", NS, AT(rx_ack_ps), 1000000},
	{"rx_datagram_ns", NS, AT(rx_datagram_ps), 1000000},
	{"rx_receive_ns", NS, AT(rx_receive_ps), 1000000},
	{"place_ns", NS, AT(place_ps), 1000000},
	{"sample_ns", NS, AT(sample_ps), 1000000},
	{"atomic_ns", NS, AT(atomic_ps), 1000000},
	{"atomic_dram_ns", NS, AT(atomic_dram_ps), 1000000},
	{"cpu_cache_bytes", COUNT, AT(cpu_cache_bytes), 1ull << 40},
	{"link_gbps", GBPS, AT(link), 100000},
	{"wire_ns", NS, AT(wire_ps), 1000000000},
	{"header_bytes", COUNT, AT(header_bytes), 4096},
	{"mtu", COUNT, AT(mtu), 65536},
	{"cache_units", COUNT, AT(cache_units), 1u << 20},
	{"requester_units", COUNT, AT(requester_units), 1u << 16},
	{"reader_units", COUNT, AT(reader_units), 1u << 16},
	{"responder_units", COUNT, AT(responder_units), 1u << 16},
	{"translation_bytes", COUNT, AT(translation_bytes), 1ull << 40},
	{"translation_units", COUNT, AT(translation_units), 1u << 20},
	{"miss_ns", NS, AT(miss_ps), 1000000},
	{"miss_inbound_ns", NS, AT(miss_inbound_ps), 1000000},
	{"miss_write_ns", NS, AT(miss_write_ps), 1000000},
	{"wqe_slots", COUNT, AT(wqe_slots), 1u << 24},
	{"wqe_qp_slots", COUNT, AT(wqe_qp_slots), 1u << 24},
	{"wqe_miss_ns", NS, AT(wqe_miss_ps), 1000000},
	{"wqe_miss_write_ns", NS, AT(wqe_miss_write_ps), 1000000},
	{"stalls", COUNT, AT(stalls), 1},
	{"visit_ns", NS, AT(visit_ps), 1000000},
	{"visit_send_ns", NS, AT(visit_send_ps), 1000000},
	{"miss_receive_ns", NS, AT(miss_receive_ps), 1000000},
	{"cqe_ns", NS, AT(cqe_ps), 1000000},
	{"interrupt_ns", NS, AT(interrupt_ps), 1000000000},
	{"spin_ns", NS, AT(spin_ps), 1000000000},
	{"register_ns", NS, AT(register_ps), 1000000000},
	{"register_page_ns", NS, AT(register_page_ps), 1000000},
	{"deregister_ns", NS, AT(deregister_ps), 1000000000},
	{"max_inline", COUNT, AT(max_inline), 4096},
	{"max_send_wr", COUNT, AT(max_send_wr), 65536},
	{"max_sge", COUNT, AT(max_sge), SIM_SGE_MAX},
	{"max_rd_atomic", COUNT, AT(max_rd_atomic), 65536},
	{"ud_mtu", COUNT, AT(ud_mtu), 65536},
	{"max_msg", COUNT, AT(max_msg), 1ull << 31},
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static const char *const promises[SIM_PROMISES] = {
	[SIM_UD] = "ud",
	[SIM_ATOMICS] = "atomics",
	[SIM_ATOMIC_CPU] = "atomic-cpu",
	[SIM_INORDER_WRITE] = "inorder-write",
	[SIM_INORDER_128] = "inorder-128",
	[SIM_WRITE_ORDER] = "write-order",
	[SIM_READ_HEAD_FIRST] = "read-head-first",
	[SIM_FOREIGN_REMOTE] = "foreign-remote",
};

/* ---- parser ---- */

struct reader {
	const char *name; /* of the profile or file */
	unsigned line;
	struct sim_profile *out;
	unsigned depth;
	bool begun; /* a line was read */
};

static int profile_error(const struct reader *r, const char *what, const char *value)
{
	return gn_fail_log(-EINVAL, "sim: profile %s, line %u: %s '%s'", r->name, r->line, what,
			   value);
}

/* Parses a decimal number in thousandths, saturating; false: not a number. */
static bool parse_milli(const char *text, uint64_t *out)
{
	uint64_t whole = 0, milli = 0;
	unsigned digits = 0;

	if (*text < '0' || *text > '9')
		return false;
	for (; *text >= '0' && *text <= '9'; text++)
		if (whole <= UINT64_MAX / 100000)
			whole = whole * 10 + (uint64_t)(*text - '0');
	if (*text == '.')
		for (text++; *text >= '0' && *text <= '9' && digits < 3; text++, digits++)
			milli = milli * 10 + (uint64_t)(*text - '0');
	for (; digits < 3; digits++)
		milli *= 10;
	*out = whole * 1000 + milli;
	return !*text;
}

static const struct field *find_field(const char *name)
{
	for (unsigned i = 0; i < FIELDS; i++)
		if (!strcmp(name, fields[i].name))
			return &fields[i];
	return NULL;
}

static uint64_t *field_in(const struct reader *r, const struct field *field)
{
	return (uint64_t *)(void *)((char *)r->out + field->at);
}

/* The largest value of a field in internal units. */
static uint64_t field_max(const struct field *field)
{
	return field->unit == NS ? field->max * 1000 : field->max;
}

static int field_bad_value(const struct reader *r, const struct field *field, const char *value,
			   const char *what)
{
	return gn_fail_log(-EINVAL, "sim: profile %s, line %u: %s '%s' %s", r->name, r->line,
			   field->name, value, what);
}

static int field_too_large(const struct reader *r, const struct field *field, const char *value)
{
	return gn_fail_log(-EINVAL, "sim: profile %s, line %u: %s '%s' is above %llu", r->name,
			   r->line, field->name, value, (unsigned long long)field->max);
}

static int profile_set_field(const struct reader *r, const struct field *field, const char *value)
{
	const struct field *same = find_field(value);
	uint64_t *to = field_in(r, field), milli;

	if (same && same->unit == field->unit) { /* same value as another field */
		if (same->max > field->max && *field_in(r, same) > field_max(field))
			return field_too_large(r, field, value);
		*to = *field_in(r, same);
		return 0;
	}
	if (*value == '-')
		return field_bad_value(r, field, value, "is negative");
	if (same)
		return field_bad_value(r, field, value, "is a field of another unit");
	if (!parse_milli(value, &milli))
		return field_bad_value(r, field, value,
				       "is neither a number of at most three decimals nor a field");
	if (milli > field->max * 1000)
		return field_too_large(r, field, value);
	switch (field->unit) {
	case NS: /* to ps */
		*to = milli;
		break;
	case COUNT:
		if (milli % 1000)
			return field_bad_value(r, field, value, "is not a whole number");
		*to = milli / 1000;
		break;
	case GBPS: /* to ps for 1024 bytes */
		*to = milli ? 8192000000u / milli : 0;
		break;
	case GBYTES: /* to ps a byte */
		*to = milli ? 1000000u / milli : 0;
		break;
	case PERCENT:
		*to = milli * 10;
		break;
	}
	return 0;
}

static int profile_set_caps(const struct reader *r, char *list)
{
	r->out->promises = 0;
	for (char *save, *word = strtok_r(list, ",", &save); word;
	     word = strtok_r(NULL, ",", &save)) {
		unsigned i = 0;

		while (i < SIM_PROMISES && strcmp(word, promises[i]))
			i++;
		if (i == SIM_PROMISES)
			return profile_error(r, "no such capability:", word);
		r->out->promises |= 1u << i;
	}
	return 0;
}

static int profile_read_text(struct reader *r, const char *text);

static int profile_copy_like(const struct reader *r, const char *name)
{
	struct reader other = {.name = name, .out = r->out, .depth = r->depth + 1};
	const char *text = gn_sim_profile_text(name);

	if (!text || other.depth > LIKE_MAX)
		return profile_error(r, "no such built-in profile to be like:", name);
	return profile_read_text(&other, text);
}

/* NAME VALUE, followed by its source as a comment. */
static int profile_read_line(struct reader *r, char *line)
{
	char *save, *name = strtok_r(line, " \t\r", &save), *value;
	const struct field *field;

	if (!name || *name == '#')
		return 0;
	value = strtok_r(NULL, " \t\r", &save);
	if (!value || *value == '#')
		return profile_error(r, "no value for", name);
	if (!strcmp(name, "like") && r->begun)
		return profile_error(r, "like comes first, or it would undo what is above:", value);
	r->begun = true;
	if (!strcmp(name, "like"))
		return profile_copy_like(r, value);
	if (!strcmp(name, "caps"))
		return profile_set_caps(r, value);
	field = find_field(name);
	return field ? profile_set_field(r, field, value) :
		       profile_error(r, "no such field:", name);
}

static int profile_read_text(struct reader *r, const char *text)
{
	char line[512];

	while (*text) {
		const size_t len = strcspn(text, "\n");
		int rc;

		r->line++;
		if (len >= sizeof(line))
			return profile_error(r, "longer than 511 bytes:", "the line");
		memcpy(line, text, len);
		line[len] = '\0';
		rc = profile_read_line(r, line);
		if (rc)
			return rc;
		text += len + (text[len] == '\n');
	}
	return 0;
}

/* Checks across fields. */
static int profile_check(const struct sim_profile *p, const char *name)
{
	const struct {
		const char *name;
		uint64_t value;
	} positive[] = {
		{"work_ns", p->work_ps[GN_WORK_NS]},
		{"look_ns", p->look_ps},
		{"yield_ns", p->yield_ps},
		{"post_paths", p->post_paths},
		{"mtu", p->mtu},
		{"max_send_wr", p->max_send_wr},
		{"max_sge", p->max_sge},
		{"max_rd_atomic", p->max_rd_atomic},
		{"ud_mtu", p->ud_mtu},
		{"max_msg", p->max_msg},
	};

	for (unsigned i = 0; i < sizeof(positive) / sizeof(positive[0]); i++) {
		if (!positive[i].value)
			return gn_fail_log(-EINVAL, "sim: profile %s: %s is 0 or not given", name,
					   positive[i].name);
	}
	if (p->max_msg < MAX_MSG_LEAST)
		return gn_fail_log(-EINVAL, "sim: profile %s: max_msg %llu is below %u", name,
				   (unsigned long long)p->max_msg, MAX_MSG_LEAST);
	if (p->cache_units && p->stalls && (!p->reader_units || p->reader_units > p->cache_units))
		return gn_fail_log(
			-EINVAL,
			"sim: profile %s: reader_units is not within 1 and cache_units %llu, which "
			"stalls needs",
			name, (unsigned long long)p->cache_units);
	if (p->cache_units &&
	    (!p->requester_units || !p->responder_units || p->requester_units > p->cache_units ||
	     p->responder_units > p->cache_units))
		return gn_fail_log(
			-EINVAL,
			"sim: profile %s: requester_units and responder_units are not within 1 and "
			"cache_units %llu",
			name, (unsigned long long)p->cache_units);
	return 0;
}

static int profile_read_file(const char *name, char *text)
{
	FILE *file = fopen(name, "re");
	size_t len;

	if (!file) {
		const int err = errno;

		return gn_fail_log(-err, "sim: profile %s: %s", name, gn_strerror(-err));
	}
	len = fread(text, 1, FILE_MAX, file);
	if (ferror(file)) {
		const int err = errno;

		fclose(file);
		return gn_fail_log(-err, "sim: profile %s: %s", name, gn_strerror(-err));
	}
	fclose(file);
	if (memchr(text, '\0', len))
		return gn_fail_log(-EINVAL, "sim: profile %s: no text: a byte of it is 0", name);
	if (len == FILE_MAX)
		return gn_fail_log(-EINVAL, "sim: profile %s: longer than %u bytes", name,
				   FILE_MAX - 1);
	text[len] = '\0';
	return 0;
}

static void log_unknown(const char *name)
{
	char list[256] = "";
	size_t at = 0;

	for (unsigned i = 0; i < BUILTIN; i++)
		at += (size_t)snprintf(list + at, sizeof(list) - at, " %s", builtin[i].name);
	gn_fail_log(
		0,
		"sim: profile '%s' is not known; there are%s, and files with a '/' in their name",
		name, list);
}

int sim_profile_load(const char *name, struct sim_profile *out)
{
	struct reader r = {.name = name, .out = out};
	const char *text = gn_sim_profile_text(name), *base = strrchr(name, '/');
	char *file = NULL;
	int rc = 0;

	memset(out, 0, sizeof(*out));
	if (!text) {
		if (!base) {
			log_unknown(name);
			return -EINVAL;
		}
		file = malloc(FILE_MAX + 1);
		if (!file)
			return gn_fail_text(-ENOMEM, NO_MEMORY);
		rc = profile_read_file(name, file);
		text = file;
	}
	if (!rc)
		rc = profile_read_text(&r, text);
	if (!rc)
		rc = profile_check(out, name);
	free(file);
	snprintf(out->name, sizeof(out->name), "%s", base ? base + 1 : name);
	return rc;
}
