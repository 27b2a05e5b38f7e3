//! A DRAM part: channels, banks, rows, refresh and its controller, command by command.
