/*
 * What DPDK gives as inline functions and macros, as functions that can be linked, and the opening of a port.
 *
 * One receive queue, polled by one thread. Errors are negative numbers of errno; what DPDK logged with them is kept.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

/* The lines that DPDK logged since they were read, as far as they fit: the first says most. */
static char lines[256];
static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t keep_line(void *cookie, const char *text, size_t length)
{
	size_t line = length, used;

	(void)cookie;
	while (line > 0 && (text[line - 1] == '\n' || text[line - 1] == ' ' || text[line - 1] == '.'))
		line--;
	pthread_mutex_lock(&lines_lock);
	used = strlen(lines);
	if (line > 0 && used + line + 3 <= sizeof(lines))
		snprintf(lines + used, sizeof(lines) - used, "%s%.*s", used > 0 ? "; " : "", (int)line, text);
	pthread_mutex_unlock(&lines_lock);
	return (ssize_t)length;
}

/* Copies the lines that were logged since the call before, ended by zero. */
void tapeworks_dpdk_lines(char *to, size_t room)
{
	pthread_mutex_lock(&lines_lock);
	snprintf(to, room, "%s", lines);
	lines[0] = 0;
	pthread_mutex_unlock(&lines_lock);
}

/* Starts DPDK's environment: once for a process. It pins its caller to a core; that is undone. */
int tapeworks_dpdk_start(int count, char **arguments)
{
	cookie_io_functions_t functions = { .write = keep_line };
	FILE *log = fopencookie(NULL, "w", functions);
	cpu_set_t cores;
	int result;

	if (log != NULL) {
		setvbuf(log, NULL, _IOLBF, 0);
		rte_openlog_stream(log);
	}
	if (pthread_getaffinity_np(pthread_self(), sizeof(cores), &cores) != 0)
		return -errno;
	result = rte_eal_init(count, arguments);
	if (result < 0)
		result = rte_errno != 0 ? -(int)rte_errno : -EINVAL;
	pthread_setaffinity_np(pthread_self(), sizeof(cores), &cores);
	return result < 0 ? result : 0;
}

/* Undoes what `tapeworks_dpdk_open` did, as far as it came. */
void tapeworks_dpdk_close(uint16_t port, void *pool)
{
	struct rte_eth_dev_info info;
	struct rte_device *device = NULL;

	if (rte_eth_dev_info_get(port, &info) == 0)
		device = info.device;
	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
	if (device != NULL)
		rte_dev_remove(device);
	rte_mempool_free(pool);
}

static int configure(uint16_t port, uint16_t descriptors, struct rte_mempool *pool, int promiscuous, const char **doing)
{
	struct rte_eth_conf conf;
	struct rte_eth_dev_info info;
	uint16_t receive = descriptors, send = 64;
	int socket = rte_eth_dev_socket_id(port);
	int result;

	if (socket < 0)
		socket = 0;
	memset(&conf, 0, sizeof(conf));
	*doing = "read what it can";
	result = rte_eth_dev_info_get(port, &info);
	if (result < 0)
		return result;
	*doing = "configure it";
	result = rte_eth_dev_configure(port, 1, 1, &conf);
	if (result < 0)
		return result;
	result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &send);
	if (result < 0)
		return result;
	*doing = "make its queues";
	result = rte_eth_rx_queue_setup(port, 0, receive, (unsigned int)socket, NULL, pool);
	if (result < 0)
		return result;
	result = rte_eth_tx_queue_setup(port, 0, send, (unsigned int)socket, NULL);
	if (result < 0)
		return result;
	*doing = "start it";
	result = rte_eth_dev_start(port);
	if (result < 0)
		return result;
	if (promiscuous) {
		*doing = "make it promiscuous";
		result = rte_eth_promiscuous_enable(port);
	} else {
		*doing = "let it receive all groups";
		result = rte_eth_allmulticast_enable(port);
	}
	/* A virtual device has no filter that could be opened. */
	return result == -ENOTSUP ? 0 : result;
}

/*
 * Opens a device, which DPDK knows by `device` ("0000:01:00.0", "net_af_packet0,iface=eth1"), and starts its port. Gives the port and its
 * pool of `buffers`, or where it failed: `*doing`.
 */
int tapeworks_dpdk_open(const char *device, uint32_t buffers, uint16_t descriptors, int promiscuous, uint16_t *port, void **pool,
			const char **doing)
{
	char name[RTE_ETH_NAME_MAX_LEN];
	char pool_name[RTE_MEMPOOL_NAMESIZE];
	const char *start = device;
	size_t length;
	int result;

	*doing = "find it";
	result = rte_dev_probe(device);
	if (result < 0 && result != -EEXIST)
		return result;
	if (strncmp(start, "vdev:", 5) == 0)
		start += 5;
	else if (strncmp(start, "pci:", 4) == 0)
		start += 4;
	length = strcspn(start, ",");
	if (length >= sizeof(name))
		return -ENAMETOOLONG;
	memcpy(name, start, length);
	name[length] = 0;
	result = rte_eth_dev_get_port_by_name(name, port);
	if (result < 0)
		return result;
	snprintf(pool_name, sizeof(pool_name), "tapeworks%u", (unsigned int)*port);
	if (rte_mempool_lookup(pool_name) != NULL) {
		*doing = "open it twice";
		return -EBUSY;
	}
	*doing = "make its buffers";
	*pool = rte_pktmbuf_pool_create(pool_name, buffers, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	result = *pool != NULL ? configure(*port, descriptors, *pool, promiscuous, doing) : -(int)rte_errno;
	if (result < 0)
		tapeworks_dpdk_close(*port, *pool);
	return result < 0 ? result : 0;
}

/* A frame that is ours until it is given back. `bytes` is null if it lies in several pieces. */
struct tapeworks_dpdk_frame {
	struct rte_mbuf *held;
	const uint8_t *bytes;
	uint32_t length;
};

/* Takes frames that are there. A VLAN tag that the card took off is put back. */
uint16_t tapeworks_dpdk_take(uint16_t port, struct tapeworks_dpdk_frame *frames, uint16_t most)
{
	struct rte_mbuf *taken[64];
	uint16_t count, at;

	if (most > 64)
		most = 64;
	count = rte_eth_rx_burst(port, 0, taken, most);
	for (at = 0; at < count; at++) {
		struct rte_mbuf *frame = taken[at];

		if ((frame->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0)
			/* It fails without room before the frame, which every fresh buffer has; the frame stays without its tag then. */
			(void)rte_vlan_insert(&frame);
		frames[at].held = frame;
		frames[at].bytes = frame->nb_segs == 1 ? rte_pktmbuf_mtod(frame, const uint8_t *) : NULL;
		frames[at].length = rte_pktmbuf_pkt_len(frame);
	}
	return count;
}

/* Copies a frame in pieces to `to`, which has room for all of it. Whether it did. */
int tapeworks_dpdk_copy(const struct tapeworks_dpdk_frame *frame, uint8_t *to, uint32_t room)
{
	const void *whole;

	if (frame->length > room)
		return 0;
	whole = rte_pktmbuf_read(frame->held, 0, frame->length, to);
	if (whole == NULL)
		return 0;
	if (whole != to)
		memcpy(to, whole, frame->length);
	return 1;
}

/* Gives frames back. */
void tapeworks_dpdk_give_back(struct tapeworks_dpdk_frame *frames, uint16_t count)
{
	uint16_t at;

	for (at = 0; at < count; at++)
		rte_pktmbuf_free(frames[at].held);
}

/* Frames that came, and those that the device dropped: no descriptor was free, no buffer was, or the frame was damaged. */
int tapeworks_dpdk_counts(uint16_t port, uint64_t *came, uint64_t *dropped)
{
	struct rte_eth_stats stats;
	int result = rte_eth_stats_get(port, &stats);

	if (result < 0)
		return result;
	*came = stats.ipackets;
	*dropped = stats.imissed + stats.ierrors + stats.rx_nombuf;
	return 0;
}

/* Whether the device was unplugged. */
int tapeworks_dpdk_is_gone(uint16_t port)
{
	return rte_eth_dev_is_removed(port);
}
