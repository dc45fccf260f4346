/* SPDX-License-Identifier: MIT */
/* Events at a time of a node's clock. A drift of the clock moves them. */
#include "base/list.h"
#include "sim/nodes.h"

static void alarm_schedule(struct sim_alarm *alarm)
{
	struct sim_engine *engine = &alarm->node->sim->engine;
	const uint64_t at_ps = alarm->deadline_ns == GN_FOREVER ?
				       SIM_NEVER :
				       sim_clock_until_ps(&alarm->node->clock, alarm->deadline_ns);

	if (at_ps == SIM_NEVER)
		sim_event_cancel(engine, &alarm->event);
	else
		sim_event_at(engine, &alarm->event, at_ps);
}

static void alarm_fired(struct sim_event *event)
{
	struct sim_alarm *alarm = container_of(event, struct sim_alarm, event);

	alarm->deadline_ns = GN_FOREVER;
	alarm->ring(alarm);
}

int sim_alarm_init(struct sim_alarm *alarm, struct sim_node *node,
		   void (*ring)(struct sim_alarm *alarm))
{
	int rc = sim_event_init(&node->sim->engine, &alarm->event, alarm_fired, SIM_KIND_ALARM,
				(uint64_t)node->index << 32 | ++node->n_alarms);

	if (rc)
		return rc;
	alarm->node = node;
	alarm->ring = ring;
	alarm->deadline_ns = GN_FOREVER;
	list_push(&node->alarms, alarm);
	return 0;
}

void sim_alarm_fini(struct sim_alarm *alarm)
{
	list_remove(alarm);
	sim_event_fini(&alarm->node->sim->engine, &alarm->event);
}

void sim_alarm_set(struct sim_alarm *alarm, uint64_t deadline_ns)
{
	alarm->deadline_ns = deadline_ns;
	alarm_schedule(alarm);
}

void sim_alarms_drift(struct sim_node *node)
{
	for (struct sim_alarm *alarm = node->alarms; alarm; alarm = alarm->next)
		alarm_schedule(alarm);
}
