//! Writes of firmwares that HyperTransport has taken and the hosts' memory has not.

use crate::topology::NodeId;

/// Writes of firmwares on their way through HyperTransport.
#[derive(Debug, Default)]
pub(crate) struct PostedWrites {
    writes: Vec<Write>,
    vacant: Vec<u32>,
    /// Those under way, by node, oldest first.
    under_way: Vec<Vec<u32>>,
}

#[derive(Debug)]
struct Write {
    node: NodeId,
    address: u64,
    data: Vec<u8>,
}

impl PostedWrites {
    pub(crate) fn put(&mut self, node: NodeId, address: u64, data: &[u8]) -> u32 {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.writes.push(Write {
                node,
                address,
                data: Vec::new(),
            });
            (self.writes.len() - 1) as u32
        });
        let write = &mut self.writes[index as usize];
        (write.node, write.address) = (node, address);
        write.data.clear();
        write.data.extend_from_slice(data);
        if self.under_way.len() <= node.index() {
            self.under_way.resize_with(node.index() + 1, Vec::new);
        }
        self.under_way[node.index()].push(index);
        index
    }

    /// The write arrives.
    pub(crate) fn take(&mut self, index: u32) -> (u64, Vec<u8>) {
        let write = &mut self.writes[index as usize];
        let under_way = &mut self.under_way[write.node.index()];
        // They arrive in order.
        if let Some(at) = under_way.iter().position(|i| *i == index) {
            under_way.remove(at);
        }
        (write.address, std::mem::take(&mut write.data))
    }

    /// Bytes of a write on its way.
    pub(crate) fn length(&self, index: u32) -> usize {
        self.writes[index as usize].data.len()
    }

    /// Gives the buffer of [`PostedWrites::take`] back.
    pub(crate) fn recycle(&mut self, index: u32, buffer: Vec<u8>) {
        self.writes[index as usize].data = buffer;
        self.vacant.push(index);
    }

    /// Changes what was read at an address of a node's memory to what it will be when all writes have arrived.
    #[inline]
    pub(crate) fn show(&self, node: NodeId, address: u64, read: &mut [u8]) {
        let Some(under_way) = self.under_way.get(node.index()) else {
            return;
        };
        for index in under_way {
            let write = &self.writes[*index as usize];
            let skipped = usize::try_from(address.saturating_sub(write.address));
            let before = usize::try_from(write.address.saturating_sub(address));
            let (Ok(skipped), Ok(before)) = (skipped, before) else {
                continue;
            };
            let new = write.data.get(skipped..).unwrap_or_default();
            let old = read.get_mut(before..).unwrap_or_default();
            for (old, new) in old.iter_mut().zip(new) {
                *old = *new;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_sees_the_writes_before_it_and_nothing_around_them() {
        let (node, other) = (NodeId(2), NodeId(1));
        let mut posted = PostedWrites::default();
        let read = |posted: &PostedWrites, address| {
            let mut read = [0; 8];
            posted.show(node, address, &mut read);
            read
        };
        assert_eq!(read(&posted, 100), [0; 8]);
        let first = posted.put(node, 102, &[1; 4]);
        posted.put(other, 100, &[9; 8]);
        posted.put(node, 104, &[2; 4]);
        assert_eq!(read(&posted, 100), [0, 0, 1, 1, 2, 2, 2, 2]);
        assert_eq!(read(&posted, 104), [2, 2, 2, 2, 0, 0, 0, 0]);
        assert_eq!(read(&posted, 94), [0; 8]);
        assert_eq!(read(&posted, 108), [0; 8]);
        assert_eq!(read(&posted, u64::MAX - 3), [0; 8]);
        let (address, data) = posted.take(first);
        assert_eq!((address, data.len()), (102, 4));
        posted.recycle(first, data);
        assert_eq!(read(&posted, 100), [0, 0, 0, 0, 2, 2, 2, 2]);
        assert_eq!(posted.put(node, 100, &[3]), first, "used again");
        assert_eq!(read(&posted, 100), [3, 0, 0, 0, 2, 2, 2, 2]);
    }
}
