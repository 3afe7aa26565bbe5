/** What both clients do with connections. Not meant for others: it may change at any time. */
package io.tapeworks.client.net;
