/* SPDX-License-Identifier: MIT */
/*
 * Intrusive doubly linked lists. A list is a pointer to its first node. A node has the members next
 * and prev; prev is the address of the pointer that points to the node, so that a node can be
 * removed without its list.
 */
#ifndef GN_BASE_LIST_H
#define GN_BASE_LIST_H

/* Inserts the node at the front. */
#define list_push(list, node)                             \
	do {                                              \
		typeof(node) node_ = (node);              \
		typeof(node) *const list_ = (list);       \
		node_->next = *list_;                     \
		node_->prev = list_;                      \
		if (node_->next)                          \
			node_->next->prev = &node_->next; \
		*list_ = node_;                           \
	} while (0)

/* Leaves the node's own members as they are. */
#define list_remove(node)                                \
	do {                                             \
		typeof(node) node_ = (node);             \
		*node_->prev = node_->next;              \
		if (node_->next)                         \
			node_->next->prev = node_->prev; \
	} while (0)

#endif
